//! Runs the cells of a plan as processes of this program, several at once.

use super::plan::{Cell, Plan};
use super::table::{Row, Table};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::run::{CONFIG, END_WITH_STDIN, Outcome, SUMMARY, interrupt};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// How much of the machine a sweep takes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads of all cells together; 0 = one per CPU.
    pub threads: usize,
    /// Cells at once; 0 = as many as there are threads.
    pub jobs: usize,
    /// Cells that failed before are run again.
    pub retry: bool,
    /// No progress on stderr.
    pub quiet: bool,
}

/// Runs every cell that has no row in `out`/results.csv yet and adds its row; a cell that fails is a row too.
///
/// # Errors
/// A folder that another sweep holds, a table with other columns, or what could not be written.
pub fn run(plan: &Plan, out: &Path, limits: Limits) -> Result<Outcome> {
    interrupt::watch()?;
    fs::create_dir_all(out.join("cells")).map_err(Error::io(out))?;
    let lock_path = out.join("lock");
    let lock = File::create(&lock_path).map_err(Error::io(&lock_path))?;
    if lock.try_lock().is_err() {
        return Err(Error::file(
            &lock_path,
            "another sweep is at work in this folder; wait for it or give another --out",
        ));
    }
    let table = Table::open(&out.join("results.csv"), |row| row.is_done() || !limits.retry)?;
    let left: Vec<&Cell> =
        plan.cells.iter().filter(|cell| !table.rows.iter().any(|row| row.get("cell") == cell.name)).collect();
    let threads = match limits.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let jobs = if limits.jobs == 0 { threads } else { limits.jobs }.clamp(1, left.len().max(1));
    let bar = if limits.quiet { ProgressBar::hidden() } else { ProgressBar::new(plan.cells.len() as u64) };
    let style = ProgressStyle::with_template("{pos}/{len} cells {wide_bar} {elapsed} gone, {eta} to go {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_position((plan.cells.len() - left.len()) as u64);
    bar.reset_eta();
    let shared = Mutex::new((left.into_iter(), table, Ok::<(), Error>(())));
    let worker = || {
        loop {
            let cell = match shared.lock() {
                Ok(mut shared) if shared.2.is_ok() && !interrupt::asked() => shared.0.next(),
                _ => None,
            };
            let Some(cell) = cell else { return };
            let row = fit(cell, &out.join("cells").join(&cell.name), (threads / jobs).max(1));
            let Ok(mut shared) = shared.lock() else { return };
            match row.and_then(|row| row.map_or(Ok(()), |row| shared.1.add(row))) {
                Ok(()) => bar.inc(1),
                Err(e) => shared.2 = Err(e),
            }
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(worker))));
    bar.finish_and_clear();
    let (_, table, ended) = shared.into_inner().map_err(|_| Error::State("a worker of the sweep failed".into()))?;
    ended?;
    let failed = table.rows.iter().filter(|row| !row.is_done()).count();
    let done = table.rows.len() - failed;
    crate::run::say(&format!("{}: {done} cells done, {failed} failed", out.join("results.csv").display()));
    Ok(if interrupt::asked() { Outcome::Interrupted } else { Outcome::Done })
}

/// The row of a cell, run in `folder` or found there; none where the user stopped it.
fn fit(cell: &Cell, folder: &Path, threads: usize) -> Result<Option<Row>> {
    if let Some(row) = found(cell, folder) {
        return Ok(Some(row));
    }
    let config = Config { out: folder.to_owned(), threads, quiet: true, ..cell.config.clone() };
    let errors = folder.with_extension("err");
    let stderr = File::create(&errors).map_err(Error::io(&errors))?;
    let program = std::env::current_exe().map_err(Error::io("/proc/self/exe"))?;
    let mut command = Command::new(&program);
    command.args(config.to_args()).env(END_WITH_STDIN, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr);
    let mut child = command.spawn().map_err(Error::io(&program))?;
    // Held open: the cell ends when this program does, however that ends.
    let mut stdin = child.stdin.take();
    let status = loop {
        match child.try_wait().map_err(Error::io(&program))? {
            Some(status) => break status,
            None if interrupt::asked() => drop(stdin.take()),
            None => {}
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = last_line(&errors);
    fs::remove_file(&errors).map_err(Error::io(&errors))?;
    match found(cell, folder).filter(|_| status.success()) {
        Some(row) => Ok(Some(row)),
        None if interrupt::asked() => Ok(None),
        None => Ok(Some(Row::failed(cell, &reason(status, &said)))),
    }
}

fn reason(status: ExitStatus, said: &str) -> String {
    if said.is_empty() { status.to_string() } else { format!("{status}: {said}") }
}

/// The last line of a file that may hold anything.
fn last_line(path: &Path) -> String {
    let mut bytes = vec![];
    let read = File::open(path).and_then(|file| file.take(1 << 20).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    if read.is_ok() { text.lines().last().unwrap_or("").to_owned() } else { String::new() }
}

/// The row of a finished run of this cell in `folder`.
fn found(cell: &Cell, folder: &Path) -> Option<Row> {
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(folder.join(SUMMARY)).ok()?).ok()?;
    let path = folder.join(CONFIG);
    let config = Config::from_toml(&fs::read_to_string(&path).ok()?, &path).ok()?;
    let finished = summary["finished"] == true;
    let same = summary["config_hash"].as_str() == Some(config.hash().as_str()) && config.seed == cell.config.seed;
    (finished && same).then(|| Row::done(cell, &summary, &config))
}
