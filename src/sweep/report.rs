//! Tables, plots and curves from the rows of sweeps. The same rows give the same bytes.

use super::curves::{Curve, difference, hull};
use super::plan::together;
use super::table::{Row, Table, header};
use crate::error::{Error, Result};
use crate::files::{safe_name, write_atomic};
use crate::plot::{Frame, Series, lines};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Marks between which a table is put into another file.
const MARKS: [&str; 2] = ["<!-- table -->", "<!-- end -->"];
/// Settings that are no axis of a table.
const NO_AXIS: [&str; 4] = ["images", "seed", "out", "threads"];
/// Lines of a plot over time at most.
const MOST_LINES: usize = 10;

/// A rate: its column, and what a plot says of it.
const RATES: [(&str, &str, &str); 2] = [
    ("bpp_file", "file", "bits per texel of the file (disk)"),
    ("bpp_raw", "memory", "bits per texel in memory, random access"),
];

/// Runs that differ in nothing but the seed.
struct Group<'a> {
    series: String,
    /// Values of the axes.
    axes: Vec<&'a str>,
    rows: Vec<&'a Row>,
}

/// Makes report.md, report.json and the plots in `folder` from its results.csv, those of its sub-folders (shards) and other
/// tables with the same columns in it (baselines); puts the tables into `into` between its marks; returns what was written.
/// `baseline` is the series that Bjontegaard differences are against.
///
/// # Errors
/// No rows, a baseline that is not there, a file without marks.
pub fn report(folder: &Path, baseline: Option<&str>, into: Option<&Path>) -> Result<Vec<PathBuf>> {
    let rows = rows(folder)?;
    let done: Vec<&Row> = rows.iter().filter(|row| row.is_done()).collect();
    if done.is_empty() {
        return Err(Error::file(folder, "holds no finished cell; run `ntc-es sweep` with this folder as --out first"));
    }
    let axes = axes(&done);
    let images: BTreeSet<&str> = done.iter().map(|row| row.get("images")).collect();
    let mut written = vec![];
    let mut put = |name: String, text: &str| -> Result<String> {
        let path = folder.join(&name);
        write_atomic(&path, |w| w.write_all(text.as_bytes()))?;
        written.push(path);
        Ok(name)
    };
    let (mut markdown, mut json) = (String::new(), vec![]);
    for images in images {
        let of: Vec<&Row> = done.iter().copied().filter(|row| row.get("images") == images).collect();
        let groups = groups(&of, &axes);
        let _ = writeln!(markdown, "### {images}\n\n{}", table(&axes, &groups)); // a String takes everything
        for (column, name, unit) in RATES {
            let curves = curves(&groups, column);
            if let Some(baseline) = baseline {
                markdown += &differences(images, baseline, &curves, unit)?;
            }
            let series: Vec<Series> =
                curves.iter().map(|(name, points)| Series { name: name.clone(), points: points.clone() }).collect();
            let frame = Frame { title: images, x: unit, y: "PSNR, dB", log_x: false };
            if let Ok(text) = lines(&frame, &series) {
                let name = put(format!("rd-{name}-{}.svg", safe_name(images)), &text)?;
                let _ = writeln!(markdown, "![PSNR against {unit}]({name})\n");
            }
        }
        let frame = Frame { title: images, x: "CPU-seconds", y: "PSNR, dB", log_x: true };
        if let Ok(text) = lines(&frame, &over_time(folder, &groups)) {
            let name = put(format!("time-{}.svg", safe_name(images)), &text)?;
            let _ = writeln!(markdown, "![PSNR against CPU-seconds]({name})\n");
        }
        json.extend(curves_json(images, &groups));
    }
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.is_done()).collect();
    if !failed.is_empty() {
        markdown += "| failed cell | why |\n|---|---|\n";
        failed.iter().for_each(|row| markdown += &format!("| {} | {} |\n", row.get("cell"), row.get("error")));
    }
    put("report.md".into(), &markdown)?;
    put("report.json".into(), &format!("{:#}\n", serde_json::Value::Array(json)))?;
    if let Some(into) = into {
        let text = fs::read_to_string(into).map_err(Error::io(into))?;
        let text = between_marks(&text, markdown.trim_end())
            .ok_or_else(|| Error::file(into, format!("has no {} with {} behind it", MARKS[0], MARKS[1])))?;
        write_atomic(into, |w| w.write_all(text.as_bytes()))?;
        written.push(into.to_owned());
    }
    Ok(written)
}

/// `text` with `inner` between the marks.
fn between_marks(text: &str, inner: &str) -> Option<String> {
    let start = text.find(MARKS[0])? + MARKS[0].len();
    let end = start + text[start..].find(MARKS[1])?;
    Some(format!("{}\n{inner}\n{}", &text[..start], &text[end..]))
}

/// The rows of all tables in a folder and one level below it; of rows of one cell the last counts.
fn rows(folder: &Path) -> Result<Vec<Row>> {
    let mut paths = vec![];
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        if path.is_dir() {
            paths.push(path.join("results.csv"));
        } else if path.extension().is_some_and(|e| e == "csv") {
            paths.push(path);
        }
    }
    paths.sort();
    let first = header().join(",");
    let mut rows: Vec<Row> = vec![];
    for path in paths.iter().filter(|path| path.is_file()) {
        let text = fs::read_to_string(path).map_err(Error::io(path))?;
        if text.lines().next() != Some(first.as_str()) {
            if path.file_name().is_some_and(|name| name == "results.csv") {
                return Err(Error::file(path, "has other columns than this version reads; run the sweep again"));
            }
            continue;
        }
        for row in Table::read(path)? {
            rows.retain(|other| other.get("cell") != row.get("cell"));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The settings that differ among our own rows.
fn axes(rows: &[&Row]) -> Vec<String> {
    let at = header().iter().position(|name| name == "images").unwrap_or(0);
    let settings = header().into_iter().skip(at);
    let ours: Vec<&&Row> = rows.iter().filter(|row| row.get("source") == "ntc-es").collect();
    let differs = |name: &String| ours.iter().any(|row| row.get(name) != ours[0].get(name));
    settings.filter(|name| !NO_AXIS.contains(&name.as_str()) && differs(name)).collect()
}

fn series_of(row: &Row) -> String {
    let (source, case) = (row.get("source"), row.get("case"));
    if source != "ntc-es" || case.is_empty() { source.to_owned() } else { case.to_owned() }
}

fn groups<'a>(rows: &[&'a Row], axes: &[String]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = vec![];
    for row in rows {
        // A baseline has no settings of ours: its own name tells its rows apart.
        let ours = row.get("source") == "ntc-es";
        let values: Vec<&str> =
            if ours { axes.iter().map(|axis| row.get(axis)).collect() } else { vec![row.get("cell")] };
        let series = series_of(row);
        match groups.iter_mut().find(|group| group.series == series && group.axes == values) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { series, axes: values, rows: vec![row] }),
        }
    }
    groups
}

impl Group<'_> {
    fn values(&self, column: &str) -> Vec<f64> {
        self.rows.iter().filter_map(|row| row.number(column)).collect()
    }

    fn mean(&self, column: &str) -> Option<f64> {
        let values = self.values(column);
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Standard deviation over the seeds, of a sample.
    fn spread(&self, column: &str) -> Option<f64> {
        let (values, mean) = (self.values(column), self.mean(column)?);
        let n = values.len() as f64;
        (n > 1.0).then(|| (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
    }

    fn cell(&self, column: &str, digits: usize) -> String {
        let mean = self.mean(column).map_or("-".into(), |x| format!("{x:.digits$}"));
        self.spread(column).map_or(mean.clone(), |sd| format!("{mean} ± {sd:.digits$}"))
    }
}

fn table(axes: &[String], groups: &[Group]) -> String {
    let columns: Vec<&str> = ["series"].into_iter().chain(axes.iter().map(String::as_str)).collect();
    let figures = ["runs", "PSNR, dB", "SSIM", "bpp raw", "bpp file", "CPU s", "decode s"];
    let mut out = format!("| {} | {} |\n", columns.join(" | "), figures.join(" | "));
    out += &format!("|{}{}\n", "---|".repeat(columns.len()), "--:|".repeat(figures.len()));
    for group in groups {
        let mut cells = vec![group.series.clone()];
        let ours = group.axes.len() == axes.len() && group.rows[0].get("source") == "ntc-es";
        cells.extend((0..axes.len()).map(|k| if ours { group.axes[k].to_owned() } else { String::new() }));
        cells.push(group.rows.len().to_string());
        cells.extend(
            [("psnr_q_db", 2), ("ssim", 4), ("bpp_raw", 3), ("bpp_file", 3), ("cpu_s", 1), ("decode_s", 3)]
                .map(|(c, d)| group.cell(c, d)),
        );
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// The hull of each series' mean points.
fn curves(groups: &[Group], rate: &str) -> Vec<(String, Curve)> {
    let mut points: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for group in groups {
        if let (Some(r), Some(q)) = (group.mean(rate), group.mean("psnr_q_db")) {
            points.entry(&group.series).or_default().push((r, q));
        }
    }
    points.into_iter().map(|(name, points)| (name.to_owned(), hull(&points))).collect()
}

fn differences(images: &str, baseline: &str, curves: &[(String, Curve)], unit: &str) -> Result<String> {
    let Some((_, base)) = curves.iter().find(|(name, _)| name == baseline) else {
        let names: Vec<&str> = curves.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Error::config(format!("--baseline {baseline}: {images} has only {}", names.join(", "))));
    };
    let mut out = format!(
        "Against {baseline}, by {unit}:\n\n| series | BD-rate | over | BD-PSNR | over |\n|---|--:|--:|--:|--:|\n"
    );
    for (name, curve) in curves.iter().filter(|(name, _)| name != baseline) {
        let _ = match difference(base, curve) {
            Some(d) => writeln!(
                out,
                "| {name} | {:+.1} % | {:.0} % | {:+.2} dB | {:.0} % |",
                d.rate,
                100.0 * d.rate_overlap,
                d.psnr,
                100.0 * d.psnr_overlap
            ),
            None => writeln!(out, "| {name} | no overlap | | | |"),
        };
    }
    Ok(out + "\n")
}

/// PSNR over CPU-seconds of the first seed of each group, from the logs of the runs that are still in the folder.
fn over_time(folder: &Path, groups: &[Group]) -> Vec<Series> {
    let line = |group: &Group| {
        let log = folder.join("cells").join(group.rows[0].get("cell")).join("log.csv");
        let mut reader = csv::Reader::from_path(log).ok()?;
        let at = |name: &str, header: &csv::StringRecord| header.iter().position(|column| column == name);
        let header = reader.headers().ok()?.clone();
        let (time, psnr) = (at("cpu_s", &header)?, at("psnr_q_db", &header)?);
        let point =
            |record: csv::StringRecord| Some((record.get(time)?.parse().ok()?, record.get(psnr)?.parse().ok()?));
        let points = reader.records().filter_map(|record| point(record.ok()?)).collect();
        let axes: Vec<&str> = group.axes.iter().copied().filter(|value| !value.is_empty()).collect();
        Some(Series { name: [group.series.as_str()].into_iter().chain(axes).collect::<Vec<_>>().join(" "), points })
    };
    groups.iter().filter_map(line).take(MOST_LINES).collect()
}

/// The series in the form of CompressAI's result files.
fn curves_json(images: &str, groups: &[Group]) -> Vec<serde_json::Value> {
    let names: BTreeSet<&str> = groups.iter().map(|group| group.series.as_str()).collect();
    let series = |name: &str| {
        let mut of: Vec<&Group> = groups.iter().filter(|group| group.series == name).collect();
        of.sort_by(|a, b| a.mean("bpp_file").unwrap_or(0.0).total_cmp(&b.mean("bpp_file").unwrap_or(0.0)));
        let column = |name: &str| of.iter().map(|group| group.mean(name)).collect::<Vec<_>>();
        serde_json::json!({ "name": name, "description": images, "results": {
            "bpp": column("bpp_file"), "bpp_memory": column("bpp_raw"), "psnr": column("psnr_q_db"), "ssim": column("ssim"),
            "encoding_time": column("encode_s"), "decoding_time": column("decode_s") } })
    };
    names.into_iter().map(series).collect()
}

/// What a plan's cells are, one a line: name, images, settings as flags.
pub fn list(plan: &super::Plan, flags: bool) -> String {
    let line = |cell: &super::Cell| match flags {
        false => format!("{}\t{}\n", cell.name, together(&cell.config.images)),
        true => format!("ntc-es {}\n", cell.config.to_args().join(" ")),
    };
    plan.cells.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_go_between_the_marks() {
        let text = "a\n<!-- table -->\nold\n<!-- end -->\nb\n";
        let new = between_marks(text, "| new |").unwrap();
        assert_eq!(new, "a\n<!-- table -->\n| new |\n<!-- end -->\nb\n");
        assert_eq!(between_marks(&new, "| new |").unwrap(), new);
        assert_eq!(between_marks("<!-- end --> <!-- table -->", ""), None);
    }
}
