//! results.csv: one row a cell, every setting a column, appended and flushed as cells end.

use super::plan::{Cell, together};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::{read_up_to, write_atomic};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The columns before the settings. `status` is done or failed; `psnr_q_db_textures` holds one value a texture behind
/// semicolons; times are seconds, `encode_s` on the wall and `cpu_s` on all CPUs, `decode_s` of decoding all texels.
const FIGURES: [&str; 26] = [
    "cell",
    "case",
    "status",
    "error",
    "version",
    "commit",
    "backend",
    "device",
    "cpu_model",
    "psnr_db",
    "psnr_q_db",
    "ssim",
    "psnr_q_db_textures",
    "bpp_raw",
    "bpp_entropy",
    "bpp_file",
    "file_bytes",
    "weights",
    "iterations",
    "encode_s",
    "cpu_s",
    "decode_s",
    "peak_rss_bytes",
    "width",
    "height",
    "source",
];

/// All columns: the figures, then every setting by its flag's name.
pub fn header() -> Vec<String> {
    let settings = Config::default().cells().into_iter().map(|(key, _)| key);
    FIGURES.iter().map(|&name| name.to_owned()).chain(settings).collect()
}

/// A row by its columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(pub Vec<String>);

impl Row {
    /// A cell by its column's name; empty where there is none.
    pub fn get(&self, column: &str) -> &str {
        let at = header().iter().position(|name| name == column);
        at.and_then(|at| self.0.get(at)).map_or("", String::as_str)
    }

    /// A number by its column's name.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.get(column).parse().ok()
    }

    /// Whether the cell has figures.
    pub fn is_done(&self) -> bool {
        self.get("status") == "done"
    }

    /// The row of a cell that ended well; `summary` is its summary.json, `config` its settings in whole.
    pub fn done(cell: &Cell, summary: &Value, config: &Config) -> Row {
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let textures = summary["textures"].as_array().map_or(&[] as &[Value], Vec::as_slice);
        let each = textures.iter().map(|t| text(&t["psnr_q_db"])).collect::<Vec<_>>().join(";");
        let figure = |name: &str| match name {
            "cell" => cell.name.clone(),
            "case" => cell.case.clone(),
            "status" => "done".into(),
            "error" => String::new(),
            "device" => text(&summary["simd"]),
            "psnr_q_db_textures" => each.clone(),
            "encode_s" => text(&summary["wall_s"]),
            "source" => "ntc-es".into(),
            other => text(&summary[other]),
        };
        Row::with(figure, config)
    }

    /// The row of a cell that did not.
    pub fn failed(cell: &Cell, error: &str) -> Row {
        let figure = |name: &str| match name {
            "cell" => cell.name.clone(),
            "case" => cell.case.clone(),
            "status" => "failed".into(),
            "error" => error.replace(['\n', '\r'], " "),
            "version" => env!("CARGO_PKG_VERSION").into(),
            "source" => "ntc-es".into(),
            _ => String::new(),
        };
        Row::with(figure, &cell.config)
    }

    fn with(figure: impl Fn(&str) -> String, config: &Config) -> Row {
        // The cell's name says where it ran; a folder's path would tie the table to a machine.
        let text = |(key, value): (String, String)| match key.as_str() {
            "images" => together(&config.images),
            "out" => String::new(),
            _ => value,
        };
        let settings = config.cells().into_iter().map(text);
        Row(FIGURES.iter().map(|name| figure(name)).chain(settings).collect())
    }
}

/// The table in a file, open at its end.
pub struct Table {
    path: PathBuf,
    file: File,
    /// The rows that it holds.
    pub rows: Vec<Row>,
}

impl Table {
    /// Opens the table at `path`, or starts it; a last line that is torn goes, and so do rows that `keep` does not want.
    ///
    /// # Errors
    /// A table with other columns.
    pub fn open(path: &Path, keep: impl Fn(&Row) -> bool) -> Result<Table> {
        let rows = if path.exists() { Table::read(path)? } else { vec![] };
        let rows: Vec<Row> = rows.into_iter().filter(keep).collect();
        let text =
            std::iter::once(line(&header())?).chain(rows.iter().map(|row| line(&row.0)).collect::<Result<Vec<_>>>()?);
        let text: Vec<u8> = text.flatten().collect();
        write_atomic(path, |w| w.write_all(&text))?;
        let file = File::options().append(true).open(path).map_err(Error::io(path))?;
        Ok(Table { path: path.to_owned(), file, rows })
    }

    /// The rows of the table at `path`, without a torn last line.
    pub fn read(path: &Path) -> Result<Vec<Row>> {
        let mut bytes = read_up_to(path, 1 << 30)?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(whole);
        let mut reader = csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(bytes.as_slice());
        let refused = |e: csv::Error| Error::file(path, e.to_string());
        let rows: Vec<Row> = reader
            .records()
            .map(|record| record.map(|r| Row(r.iter().map(str::to_owned).collect())))
            .collect::<std::result::Result<_, _>>()
            .map_err(refused)?;
        match rows.split_first() {
            None => Ok(vec![]),
            Some((first, rows)) if first.0 == header() => {
                Ok(rows.iter().filter(|row| row.0.len() == first.0.len()).cloned().collect())
            }
            Some(_) => Err(Error::file(path, "has other columns than this version writes; give another --out")),
        }
    }

    /// Adds a row; it is in the file when this returns.
    pub fn add(&mut self, row: Row) -> Result<()> {
        self.file.write_all(&line(&row.0)?).and_then(|()| self.file.sync_data()).map_err(Error::io(&self.path))?;
        self.rows.push(row);
        Ok(())
    }
}

/// One line of CSV, its end included.
fn line(cells: &[String]) -> Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().from_writer(vec![]);
    let written = writer.write_record(cells).map_err(|e| Error::State(e.to_string()));
    written.and_then(|()| writer.into_inner().map_err(|e| Error::State(e.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(name: &str) -> Cell {
        Cell { name: name.into(), case: "with \"quotes\", and a comma".into(), config: Config::default() }
    }

    #[test]
    fn rows_come_back_and_a_torn_line_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        let summary = serde_json::json!({ "psnr_db": 30.25, "simd": "scalar", "wall_s": 2.0, "ssim": null,
            "textures": [{ "psnr_q_db": 1.5 }, { "psnr_q_db": null }] });
        let mut table = Table::open(&path, |_| true).unwrap();
        let row = Row::done(&cell("a"), &summary, &Config::default());
        table.add(row.clone()).unwrap();
        table.add(Row::failed(&cell("b"), "two\nlines")).unwrap();
        table.file.write_all(b"torn,x").unwrap();
        let rows = Table::read(&path).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0], row);
        let wanted = [
            ("psnr_db", "30.25"),
            ("device", "scalar"),
            ("ssim", ""),
            ("psnr_q_db_textures", "1.5;"),
            ("mlp", "24,24"),
        ];
        for (column, value) in wanted.into_iter().chain([("encode_s", "2.0"), ("iters", "3000"), ("status", "done")]) {
            assert_eq!(row.get(column), value, "{column}");
        }
        assert_eq!((rows[1].get("status"), rows[1].get("error"), rows[1].is_done()), ("failed", "two lines", false));
        let table = Table::open(&path, Row::is_done).unwrap();
        assert_eq!(table.rows.len(), 1);
        assert!(!std::fs::read_to_string(&path).unwrap().contains("torn"));
        std::fs::write(&path, "a,b\n1,2\n").unwrap();
        assert!(Table::open(&path, |_| true).err().unwrap().to_string().contains("other columns"));
    }
}
