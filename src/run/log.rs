//! log.csv: one row a print, flushed as it is written.

use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::train::{DecoderBy, Report};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The columns. An empty cell is a value that there is none of. `decoder_loss` is the last decoder step's mean loss,
/// `dstd` (ES), `fd_rms` (finite differences) or `damping` (Gauss-Newton) its statistic.
pub const HEADER: &str = "iteration,elapsed_s,cpu_s,mse,psnr_db,psnr_q_db,bpp_raw,bpp_entropy,\
decoder_loss,dstd,fd_rms,damping,latent_mean,latent_sd,latent_max,selectors_changed,iterations_per_s";

/// The table, open at its end.
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// A table with a header alone, in place of any earlier one.
    pub fn create(path: &Path) -> Result<Self> {
        Self::with(path, "")
    }

    /// The table at `path` with the rows whose iteration `keep` wants; a torn last line goes.
    pub fn resume(path: &Path, keep: impl Fn(usize) -> bool) -> Result<Self> {
        // Bytes that are not UTF-8 belong to no row of ours.
        let bytes = if path.exists() { std::fs::read(path).map_err(Error::io(path))? } else { vec![] };
        let text = String::from_utf8_lossy(&bytes);
        let columns = HEADER.split(',').count();
        let wanted = |line: &&str| {
            let iteration = line.split(',').next().and_then(|cell| cell.parse().ok());
            line.ends_with('\n') && line.split(',').count() == columns && iteration.is_some_and(&keep)
        };
        let rows: String = text.split_inclusive('\n').skip(1).filter(wanted).collect();
        Self::with(path, &rows)
    }

    fn with(path: &Path, rows: &str) -> Result<Self> {
        write_atomic(path, |w| write!(w, "{HEADER}\n{rows}"))?;
        let file = File::options().append(true).open(path).map_err(Error::io(path))?;
        Ok(Log { path: path.to_owned(), file })
    }

    /// Adds a row of a report made after `cpu_s` seconds on all CPUs, start-up included; it is in the file when this returns.
    pub fn add(&mut self, report: &Report, cpu_s: f64) -> Result<()> {
        let row = row(report, cpu_s);
        self.file.write_all(row.as_bytes()).map_err(Error::io(&self.path))
    }
}

/// One line of the table, its end included.
fn row(report: &Report, cpu_s: f64) -> String {
    let cell = |value: Option<f64>| value.filter(|x| x.is_finite()).map_or(String::new(), |x| x.to_string());
    let thousandths = |x: f64| format!("{x:.3}");
    let statistic = |by: DecoderBy| report.decoder.filter(|(_, made)| *made == by).map(|(d, _)| d.statistic);
    let [mean, sd, max] = report.latents;
    let cells = [
        report.iteration.to_string(),
        thousandths(report.elapsed_s),
        thousandths(cpu_s),
        cell(Some(report.mse)),
        cell(report.psnr_db),
        cell(report.psnr_q_db),
        cell(Some(report.rates.raw)),
        cell(Some(report.rates.entropy)),
        cell(report.decoder.map(|(d, _)| d.loss)),
        cell(statistic(DecoderBy::Es)),
        cell(statistic(DecoderBy::Fd)),
        cell(statistic(DecoderBy::Gn)),
        cell(Some(mean)),
        cell(Some(sd)),
        cell(Some(max)),
        report.selectors_changed.map_or(String::new(), |n| n.to_string()),
        report.iterations_per_s.filter(|x| x.is_finite()).map_or(String::new(), thousandths),
    ];
    cells.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::quant::Rates;

    fn report(iteration: usize) -> Report {
        Report {
            iteration,
            elapsed_s: 1.25,
            mse: 0.0,
            psnr_db: None,
            psnr_q_db: Some(40.5),
            rates: Rates { raw: 2.0, entropy: 1.5 },
            decoder: None,
            latents: [0.0, 0.5, 1.0],
            selectors_changed: Some(3),
            iterations_per_s: None,
            textures: vec![],
        }
    }

    #[test]
    fn rows_after_the_checkpoint_and_torn_lines_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        let mut log = Log::create(&path).unwrap();
        (0..4).for_each(|iteration| log.add(&report(iteration), 2.5).unwrap());
        log.file.write_all(b"4,1.0,0.2").unwrap();
        let mut log = Log::resume(&path, |iteration| iteration != 3).unwrap();
        log.add(&report(7), 2.5).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let expected: Vec<String> =
            [0, 1, 2, 7].iter().map(|k| format!("{k},1.250,2.500,0,,40.5,2,1.5,,,,,0,0.5,1,3,")).collect();
        assert_eq!(text.lines().next(), Some(HEADER));
        assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), expected);
        // A table that is not there starts anew.
        std::fs::remove_file(&path).unwrap();
        Log::resume(&path, |_| true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }
}
