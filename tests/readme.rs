//! The README's figures are those of the committed tables.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The rows of experiment 004's group `records` as the README shows them.
fn records() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/004-optimisers/results.csv");
    let mut reader = csv::Reader::from_path(path).unwrap();
    let header = reader.headers().unwrap().clone();
    let mut table = String::from(
        "| layout (levels, bits, filter) | PSNR, dB | bpp raw | bpp file | rounds |\n|---|--:|--:|--:|--:|\n",
    );
    for row in reader.records().map(Result::unwrap).filter(|row| &row[0] == "records") {
        let get = |name: &str| row.get(header.iter().position(|column| column == name).unwrap()).unwrap();
        let number = |name: &str| get(name).parse::<f64>().unwrap();
        let (psnr, raw, file) = (number("psnr_q_db"), number("bpp_raw"), number("bpp_file"));
        table += &format!("| {} | {psnr:.2} | {raw:.2} | {file:.2} | {} |\n", get("case"), get("iterations"));
    }
    table
}

/// `NTC_BLESS=1 cargo test --test readme` writes the table; without it the test holds README and CSV together.
#[test]
fn the_table_is_that_of_experiment_004() {
    let (text, table) = (read("README.md"), records());
    let (start, end) = ("<!-- gn -->\n", "<!-- end gn -->");
    let from = text.find(start).expect("a mark") + start.len();
    let to = from + text[from..].find(end).expect("an end mark");
    if std::env::var("NTC_BLESS").is_ok() {
        let text = format!("{}{table}{}", &text[..from], &text[to..]);
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"), text).unwrap();
        return;
    }
    assert!(table.lines().count() > 4, "{table}");
    assert_eq!(&text[from..to], table);
}

/// Figures that METHOD's chapter on Gauss-Newton says.
#[test]
fn the_figures_of_method_are_in_the_table() {
    let method = read("METHOD.md");
    let chapter = &method[method.find("**What it gives**").expect("the paragraph")..];
    let chapter = &chapter[..chapter.find("\n\n").expect("its end")];
    let mut found = 0;
    for line in records().lines().skip(2) {
        let psnr = line.split('|').nth(2).unwrap().trim();
        assert!(chapter.contains(psnr), "{psnr} of {line} is not in METHOD: {chapter}");
        found += 1;
    }
    assert!(found >= 6);
}
