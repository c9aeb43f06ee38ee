//! The program: parse, call, exit code.

use ntc_es::bench;
use ntc_es::cli::{self, Cli, Command};
use ntc_es::error::Result;
use ntc_es::run::{self, Outcome, info, interrupt, tools};
use ntc_es::sweep::{self, Limits, Plan};
use ntc_es::texture::synth;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    run::end_with_stdin();
    match cli::read(std::env::args_os()).and_then(|cli| cli.map_or(Ok(Outcome::Done), call)) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(interrupt::EXIT_CODE),
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "ntc-es: {e}"); // nobody may be left to read it
            ExitCode::from(e.exit_code())
        }
    }
}

fn call(cli: Cli) -> Result<Outcome> {
    let done = match cli.command {
        None => {
            if let Some(folder) = cli.resume {
                return run::resume(&folder, &cli.config, &cli.given);
            }
            let config = run::material::expand(&cli.config, cli.material.as_deref())?;
            match cli.cuda_check {
                true => run::cuda_check::check(&config, &cli.given),
                false => return run::fit(&config, &cli.given),
            }
        }
        Some(Command::Eval { model, images, float, out, max_pixels }) => {
            tools::eval(&model, &images, float, out.as_deref(), max_pixels)
        }
        Some(Command::Decode { model, out, float, region, format, max_pixels }) => {
            tools::decode(&model, &tools::Decode { out: &out, float, most: max_pixels, region, format })
        }
        Some(Command::Info { model, json, max_pixels }) => info::info(&model, json, max_pixels),
        Some(Command::Synth { out, size, seed }) => synth::write_material(&out, size as usize, seed),
        Some(Command::Bench { list_simd: true, .. }) => bench::print_levels(),
        Some(Command::Bench { config, size, maps, csv, .. }) => {
            bench::print_table(&config, size as usize, maps as usize, csv)
        }
        Some(Command::Sweep { plan, out, data, threads, jobs, shard, retry, list, dry_run, quiet }) => {
            let plan = Plan::read(&plan, data.as_deref())?;
            let plan = shard.map_or(plan.clone(), |(index, count)| plan.shard(index, count));
            match out {
                Some(out) if !list && !dry_run => {
                    let limits = Limits { threads: threads.into(), jobs: jobs.into(), retry, quiet };
                    return sweep::run(&plan, &out, limits);
                }
                _ => run::print(&sweep::report::list(&plan, dry_run)),
            }
        }
        Some(Command::Report { folder, baseline, into }) => {
            let written = sweep::report::report(&folder, baseline.as_deref(), into.as_deref())?;
            run::print(&written.iter().map(|path| format!("{}\n", path.display())).collect::<String>())
        }
        Some(Command::Completions { shell }) => completions(shell),
    };
    done.map(|()| Outcome::Done)
}

fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = vec![];
    clap_complete::generate(shell, &mut cli::command(), "ntc-es", &mut script);
    run::print(&String::from_utf8_lossy(&script))
}
