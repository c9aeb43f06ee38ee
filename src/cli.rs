//! The command line: flags and subcommands, and nothing that they do.

#[cfg(test)]
mod tests;

use crate::config::{Config, MAX_TEXELS};
use crate::error::{Error, Result};
use crate::run::region::Region;
use crate::texture::write::Format;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

/// Version and, where it is known, the commit: `0.1.0 (0123456789ab)`.
static VERSION: LazyLock<String> = LazyLock::new(|| match commit() {
    Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
    None => env!("CARGO_PKG_VERSION").to_owned(),
});

/// The commit that this program was built from, where the build could tell.
pub fn commit() -> Option<&'static str> {
    option_env!("NTC_COMMIT").filter(|commit| !commit.is_empty())
}

const INTRODUCTION: &str = "\
Fits a small model to an image, or to the maps of one material, without derivatives: latent grids and a tiny decoder \
network, of which evolution strategies and exhaustive search find the values. The model decodes to the images.

Without a subcommand it fits. Results go to the folder of --out: the settings (config.toml), a table of the progress \
(log.csv), pictures, the model (model.safetensors), the coded file (record.ntes), a checkpoint for --resume and a \
summary (summary.json).";

const EXAMPLES: &str = "\
Examples:
  ntc-es                                     fit the bundled material into out/
  ntc-es photo.png --latent 128 128 8        fit a photograph with a finer grid
  ntc-es bricks/                             fit the maps of a folder, told apart by their names
  ntc-es albedo=a.png normal=n.png           say what each map is for
  ntc-es m1.png m2.png --qat 2               two maps, block format with 2-bit selectors
  ntc-es m1.png --qat 3,1 --mlp-fd 0.5       selectors of 3 and 1 bits, finite differences from half way on
  ntc-es --resume out                        go on where a killed run stopped
  ntc-es m1.png --cuda                       the same on a GPU
  ntc-es eval out photo.png                  measure a fitted model
  ntc-es decode out --out pictures           write the pictures that a model stands for

Exit codes:
  0    done
  1    could not: a file, the data or the device
  2    the command line or its settings
  3    --cuda-check found a difference
  130  stopped by Ctrl-C, after saving";

/// Neural texture compression without derivatives: fit, measure and decode.
#[derive(Parser, Clone, Debug)]
#[command(name = "ntc-es", version = VERSION.as_str(), long_about = INTRODUCTION, after_long_help = EXAMPLES)]
#[command(after_help = "--help (in place of -h) adds an introduction, examples and the exit codes.")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; nothing named is a fit.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings of the fit.
    #[command(flatten)]
    pub config: Config,
    /// A material as JSON: {"textures": [{"path": "a.png", "role": "albedo"}, ..]}; paths start from its folder, and each
    /// texture may also have channels and weight [default: off]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["images", "weights", "resume"], help_heading = "Input")]
    pub material: Option<PathBuf>,
    /// Continue the run in DIR with its own settings and images [default: off]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["images", "load"], help_heading = "Output")]
    pub resume: Option<PathBuf>,
    /// Compare every step on the GPU with the CPU's and print a table: over a list of cases, or with images for these
    /// settings [default: off]
    #[arg(long, conflicts_with_all = ["resume", "load"], help_heading = "Machine")]
    pub cuda_check: bool,
    /// Kebab-case names of the settings that the user wrote, as against defaults; [`read`] fills it in.
    #[arg(skip)]
    pub given: Vec<String>,
}

/// Everything but fitting.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Measure a model against images, without training
    Eval {
        /// Run folder, model file or coded file
        #[arg(value_name = "RUN_OR_MODEL")]
        model: PathBuf,
        /// The images that the model was fitted to, in the same order
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
        /// Keep float latents and weights in place of their quantized values [default: off]
        #[arg(long)]
        float: bool,
        /// Also write the summary to this JSON file [default: off]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Refuse a model of more texels than this, padding included
        #[arg(long, value_name = "N", default_value_t = MAX_TEXELS)]
        max_pixels: usize,
    },
    /// Write the pictures that a model stands for, from the model alone
    Decode {
        /// Run folder, model file or coded file
        #[arg(value_name = "RUN_OR_MODEL")]
        model: PathBuf,
        /// Folder for the pictures, one file per texture
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Only this part of the picture, in texels; a file of --coding fixed is read no further than that takes
        /// [default: all]
        #[arg(long, value_name = "X,Y,W,H")]
        region: Option<Region>,
        /// png, raw (samples alone, low byte first) or ktx2 (uncompressed)
        #[arg(long, value_name = "FORMAT", default_value = "png")]
        format: Format,
        /// Keep float latents and weights in place of their quantized values [default: off]
        #[arg(long)]
        float: bool,
        /// Refuse a model of more texels than this, padding included
        #[arg(long, value_name = "N", default_value_t = MAX_TEXELS)]
        max_pixels: usize,
    },
    /// Say what a model is: structure, sizes and rate
    Info {
        /// Run folder, model file or coded file
        #[arg(value_name = "RUN_OR_MODEL")]
        model: PathBuf,
        /// JSON in place of text [default: off]
        #[arg(long)]
        json: bool,
        /// Refuse a model of more texels than this, padding included
        #[arg(long, value_name = "N", default_value_t = MAX_TEXELS)]
        max_pixels: usize,
    },
    /// Make the bundled material: maps of a procedural cobblestone that share one height field
    Synth {
        /// Folder for the maps
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Side of the maps in texels, 1 to 8192
        #[arg(long, value_name = "N", default_value_t = 512,
              value_parser = clap::value_parser!(u32).range(1..=8192))]
        size: u32,
        /// Seed of the stones
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// Time the steps of a fit on this machine, as a fraction of its measured fma peak
    Bench {
        /// Settings of the fit that is timed; its images are made up
        #[command(flatten)]
        config: Box<Config>,
        /// Side of the image in texels, 1 to 8192
        #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Bench",
              value_parser = clap::value_parser!(u32).range(1..=8192))]
        size: u32,
        /// RGB maps of the material, 1 to 8
        #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Bench",
              value_parser = clap::value_parser!(u32).range(1..=8))]
        maps: u32,
        /// Only list the instruction levels that this CPU has, widest first [default: off]
        #[arg(long, help_heading = "Bench")]
        list_simd: bool,
        /// CSV in place of a table [default: off]
        #[arg(long, help_heading = "Bench")]
        csv: bool,
    },
    /// Fit every cell of a grid of settings, each in a process of its own, and collect a row of each in a CSV table;
    /// started again it goes on where it stopped
    Sweep {
        /// The plan: a TOML file with images, seeds, base settings, axes and cases
        #[arg(value_name = "PLAN")]
        plan: PathBuf,
        /// Folder for results.csv and the runs
        #[arg(long, value_name = "DIR", required_unless_present_any = ["list", "dry_run"])]
        out: Option<PathBuf>,
        /// Folder that the plan's image paths start from [default: the plan's own]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Threads of all cells together, 0 is one per CPU
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=4096))]
        threads: u16,
        /// Cells at once, 0 is one per thread
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=4096))]
        jobs: u16,
        /// Only every Nth cell, from the Ith on: I/N with I from 1 to N [default: all]
        #[arg(long, value_name = "I/N", value_parser = shard)]
        shard: Option<(usize, usize)>,
        /// Run cells again that failed before [default: off]
        #[arg(long)]
        retry: bool,
        /// Only list the cells [default: off]
        #[arg(long)]
        list: bool,
        /// Only print the command of each cell [default: off]
        #[arg(long)]
        dry_run: bool,
        /// No progress on stderr [default: off]
        #[arg(long)]
        quiet: bool,
    },
    /// Make tables, plots and Bjontegaard differences of a sweep
    Report {
        /// The sweep's --out, or a folder of shards; other tables with its columns in it count as well
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Case or codec that rates and qualities are compared with [default: none]
        #[arg(long, value_name = "SERIES")]
        baseline: Option<String>,
        /// Also put the tables into this file, between <!-- table --> and <!-- end --> [default: off]
        #[arg(long, value_name = "FILE")]
        into: Option<PathBuf>,
    },
    /// Print a completion script
    Completions {
        /// The shell that reads it
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// A shard: I/N.
fn shard(text: &str) -> std::result::Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((i, n)) if (1..=n).contains(&i) => Ok((i, n)),
        _ => Err("give I/N with I from 1 to N, such as 1/4".into()),
    }
}

/// Reads a command line, the program's name first, and validates the settings of a fit.
///
/// Nothing is returned where help or the version was asked for: it has been printed. An error is one line that names
/// the flag and says what would be right.
pub fn read<I: IntoIterator<Item = OsString>>(arguments: I) -> Result<Option<Cli>> {
    let mut declared = command();
    let matches = match declared.try_get_matches_from_mut(arguments) {
        Ok(matches) => matches,
        Err(e) if e.use_stderr() => return Err(Error::Config(one_line(&e, &declared))),
        Err(e) => {
            // A closed pipe (`--help | head`) is no reason to complain.
            let _ = e.print();
            return Ok(None);
        }
    };
    let mut cli = Cli::from_arg_matches(&matches).map_err(|e| Error::Config(one_line(&e, &declared)))?;
    let wrote = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    cli.given = declared
        .get_arguments()
        .map(|a| a.get_id().as_str())
        .filter(|id| wrote(id))
        .map(|id| id.replace('_', "-"))
        .collect();
    if cli.command.is_none() {
        refuse_late_subcommand(&cli.config.images, &declared)?;
        cli.config.validate()?;
    }
    Ok(Some(cli))
}

/// The command as clap knows it: for parsing, completions and tests of the help.
pub fn command() -> clap::Command {
    // So that `--iters -1` is answered with the range and not with "unexpected argument".
    Cli::command().mut_args(|a| {
        let takes_value = a.get_long().is_some() && a.get_action().takes_values();
        a.allow_negative_numbers(takes_value)
    })
}

/// clap takes a subcommand that follows flags or images for one more image; nobody means that.
fn refuse_late_subcommand(images: &[String], declared: &clap::Command) -> Result<()> {
    match images.iter().find(|image| declared.find_subcommand(image.as_str()).is_some()) {
        Some(name) => Err(Error::config(format!(
            "{name}: a subcommand comes first and takes only its own flags \
             (ntc-es {name} --help); write ./{name} for an image of that name"
        ))),
        None => Ok(()),
    }
}

/// clap's message without its usage block, and with the help of the flag at fault.
fn one_line(error: &clap::Error, declared: &clap::Command) -> String {
    // What a value's own type said is complete as it is.
    if let Some(own) = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>()) {
        return own.to_string();
    }
    let text = error.to_string();
    let said: Vec<_> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let said = said.join("; ").replace(":; ", ": ");
    let said = said.strip_prefix("error: ").unwrap_or(&said).to_owned();
    match help_of_culprit(error, declared) {
        Some((flag, help)) => format!("{said}; --{flag}: {help}"),
        None if error.kind() == ErrorKind::ArgumentConflict => {
            let remedy = if said.contains("multiple times") { "give it once" } else { "give only one of them" };
            format!("{said}; {remedy}")
        }
        None => format!("{said}; see --help"),
    }
}

/// Name and short help of the flag whose value clap refused.
fn help_of_culprit(error: &clap::Error, declared: &clap::Command) -> Option<(String, String)> {
    let about_value = [ErrorKind::InvalidValue, ErrorKind::ValueValidation, ErrorKind::WrongNumberOfValues];
    if !about_value.contains(&error.kind()) {
        return None;
    }
    let Some(ContextValue::String(culprit)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = culprit.strip_prefix("--")?.split_whitespace().next()?;
    let found = declared.get_arguments().find(|a| a.get_long() == Some(flag))?;
    Some((flag.to_owned(), found.get_help()?.to_string()))
}
