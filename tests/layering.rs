//! The order of imports inside the crate, and where the heavy dependencies and `unsafe` may stand (DESIGN section 2).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules from the bottom up: each may import those of lower rows and itself, never its neighbours.
const LAYERS: [&[&str]; 11] = [
    &["error"],
    &["model", "files"],
    &["noise", "metrics"],
    &["config"],
    &["estimate", "texture", "bitstream"],
    &["backend"],
    &["train", "eval"],
    &["record", "plot"],
    &["run"],
    &["sweep", "bench"],
    &["cli"],
];

/// A word, the paths (from src/) that may hold it, and why.
const ONLY_IN: [(&str, &[&str], &str); 4] = [
    ("rayon", &["backend/cpu/"], "threads are the CPU backend's"),
    (
        "clap",
        // structure.rs derives ValueEnum for the few enums that are both flags and model fields: one declaration each.
        &["cli.rs", "cli/", "config/", "model/structure.rs"],
        "flags are declared once",
    ),
    ("cudarc", &["backend/cuda/"], "the device is one backend's"),
    ("unsafe", &["backend/cuda/"], "only device calls need it"),
];

/// Files that may be longer than 500 lines, and why.
const LONG: [(&str, &str); 0] = [];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// (path from src/ with forward slashes, text) of every source file.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = vec![];
    sources(&root, &mut paths);
    paths.sort();
    assert!(paths.len() > 20, "{} source files found", paths.len());
    let name = |path: &Path| path.strip_prefix(&root).expect("under src").to_string_lossy().replace('\\', "/");
    paths.iter().map(|path| (name(path), fs::read_to_string(path).expect("readable"))).collect()
}

/// The line without its comment; a string that holds two slashes is cut too, which hides nothing that is searched for.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// `word` as a whole word.
fn holds(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(inside)
            && !line[at + word.len()..].chars().next().is_some_and(inside)
    })
}

/// First modules named after `crate::` or `ntc_es::`, braces of a `use` included; macros by `$crate` are the definer's.
fn imported(text: &str) -> BTreeSet<String> {
    let text: String = text.lines().map(code).collect::<Vec<_>>().join("\n").replace("$crate::", "");
    let mut found = BTreeSet::new();
    for start in ["crate::", "ntc_es::"] {
        for (at, _) in text.match_indices(start) {
            let rest = &text[at + start.len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                // A group's first segments: what follows a brace or a comma at depth 1.
                Some(group) => first_segments(group),
                None => vec![rest],
            };
            let word = |name: &str| name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.extend(names.into_iter().map(word).filter(|name: &String| !name.is_empty()));
        }
    }
    found
}

fn first_segments(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut segments) = (1, 0, vec![]);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            segments.push(&group[from..at]);
            from = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    segments
}

fn module_of(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

#[test]
fn imports_point_one_way() {
    let layer = |module: &str| LAYERS.iter().position(|row| row.contains(&module));
    let mut wrong = vec![];
    let mut seen = 0;
    // A module's own tests may build their problems with what stands above it.
    for (file, text) in files().into_iter().filter(|(file, _)| !file.ends_with("/tests.rs")) {
        let module = module_of(&file);
        // lib.rs only declares modules; main.rs stands above everything.
        let Some(own) = layer(module).or((module == "main" || module == "lib").then_some(LAYERS.len())) else {
            wrong.push(format!("src/{file}: module `{module}` has no row in the table"));
            continue;
        };
        for name in imported(&text) {
            // `with_level!` is backend's macro, exported at the crate's root.
            let name = if name == "with_level" { "backend".into() } else { name };
            seen += 1;
            let below = layer(&name).is_some_and(|layer| layer < own);
            if name != module && !below {
                wrong.push(format!("src/{file} imports `{name}`, which is not below `{module}`"));
            }
        }
    }
    assert!(seen > 50, "{seen} imports found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn threads_flags_devices_and_unsafe_stay_where_they_belong() {
    let mut wrong = vec![];
    for (file, text) in files() {
        for (word, places, why) in ONLY_IN {
            let line = text.lines().position(|line| holds(code(line), word) && !code(line).contains("unsafe_code"));
            if let Some(line) = line.filter(|_| !places.iter().any(|place| file.starts_with(place))) {
                wrong.push(format!("src/{file}:{}: `{word}` belongs in {places:?}: {why}", line + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_stay_short() {
    let long: Vec<String> = files()
        .into_iter()
        .map(|(file, text)| (file, text.lines().count()))
        .filter(|(file, lines)| *lines > 500 && !LONG.iter().any(|(name, _)| name == file))
        .map(|(file, lines)| format!("src/{file}: {lines} lines; split it, or list it with a reason"))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The reader itself, on text worked by hand.
#[test]
fn imports_are_read_from_every_form() {
    let text = "use crate::error::{Error, Result};\nuse crate::{model::{a, b}, noise};\n// use crate::cli;\nlet x = crate::files::write();\n$crate::train::y!();";
    let found: Vec<String> = imported(text).into_iter().collect();
    assert_eq!(found, ["error", "files", "model", "noise"]);
    assert!(holds("use rayon::prelude::*;", "rayon") && !holds("crayons", "rayon") && !holds("unsafe_code", "unsafe"));
}
