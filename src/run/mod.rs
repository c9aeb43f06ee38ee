//! Runs and their folders: from settings to a fitted model on disk, and on from where a run was stopped.

pub mod checkpoint;
pub mod clock;
pub mod coded;
pub mod cuda_check;
pub mod folder;
pub mod info;
pub mod inputs;
pub mod interrupt;
pub mod log;
pub mod material;
pub mod model_file;
pub mod pictures;
mod progress;
mod quality;
mod recorder;
pub mod region;
pub mod summary;
mod tensors;
pub mod tools;

pub use folder::{CONFIG, SUMMARY};
pub use model_file::{Model, load_model, load_model_up_to};

use crate::backend::check::Watched;
use crate::backend::cpu::{Cpu, CpuOptions};
use crate::backend::simd::SimdLevel;
use crate::backend::{Backend, State};
use crate::config::MAX_TEXELS;
use crate::config::{Config, CudaDevice, Init};
use crate::error::{Error, Result};
use crate::model::decode::Geometry;
use crate::model::structure::{Rng, Structure, TextureInfo};
use crate::noise::Noise;
use crate::texture::Target;
use crate::train::{Progress, Report, fit as train, init, measure, pca};
use checkpoint::Checkpoint;
use clock::Clock;
use coded::Coded;
use folder::{CHECKPOINT, Folder, INPUTS, LOG, QUALITY, RECORD};
use inputs::{Inputs, Material, Source};
use log::Log;
use pictures::{Views, write_side_by_side};
use progress::Shown;
use quality::Search;
use recorder::Recorder;
use std::io::Write;
use std::path::Path;
use summary::{Facts, Summary};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With its last iteration.
    Done,
    /// By Ctrl-C, with everything saved.
    Interrupted,
}

/// Settings that --resume takes from the command line: they change nothing of the result.
const FREE_ON_RESUME: [&str; 6] = ["threads", "simd", "quiet", "cuda", "cuda-device", "cuda-check-every"];

/// Environment variable that makes a run end when its standard input does: a child that must not outlive its parent.
pub const END_WITH_STDIN: &str = "NTC_END_WITH_STDIN";

/// Ends this process when its standard input ends, where [`END_WITH_STDIN`] is set.
pub fn end_with_stdin() {
    if std::env::var_os(END_WITH_STDIN).is_some() {
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink()); // ended is ended
            std::process::exit(i32::from(interrupt::EXIT_CODE));
        });
    }
}

/// One line to the user on stderr. A reader that went away is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Results on stdout. A reader that went away is no reason to complain.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io("standard output")(e)),
        _ => Ok(()),
    }
}

/// A figure for a table; `-` where there is none.
fn printed(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |x| format!("{x:.digits$}"))
}

/// Fits what `config` describes and writes the run folder. `given` are the kebab-case names of the settings that the
/// user wrote, as against defaults.
///
/// # Errors
/// Settings that do not fit the images, files that cannot be read or written, a state that is no longer finite.
pub fn fit(config: &Config, given: &[String]) -> Result<Outcome> {
    config.validate()?;
    interrupt::watch()?;
    let loaded = config.load.as_deref().map(load_model).transpose()?;
    let job = Job::new(config, given, Material::load(config)?, loaded)?;
    let search = Search::new(&job.config, &job.geometry.structure)?;
    let folder = Folder::create(&config.out, job.checkpoint_bytes())?;
    folder.refuse_own_images(&config.images)?;
    if folder.holds_run() {
        say(&format!("{}: replacing the run in it", folder.path().display()));
    }
    let inputs = Inputs { images: job.sources.clone(), ..Inputs::here(folder.path())? };
    [CONFIG, QUALITY].iter().try_for_each(|name| folder.remove(name))?;
    let ended = job.start(&folder, &inputs)?;
    job.end(&folder, &inputs, ended, search)
}

/// Continues the run in `path` to the same bits as a run that was never stopped. Of `overrides`, those settings count
/// that `given` names: those of the machine, and quiet.
///
/// # Errors
/// As [`fit`]; a folder that holds no run; a damaged checkpoint; images that are missing or changed.
pub fn resume(path: &Path, overrides: &Config, given: &[String]) -> Result<Outcome> {
    if let Some(name) = given.iter().find(|name| *name != "resume" && !FREE_ON_RESUME.contains(&name.as_str())) {
        return Err(Error::config(format!("--{name}: --resume takes the run's own settings; leave it away")));
    }
    let config_path = path.join(CONFIG);
    if !config_path.is_file() {
        return Err(Error::file(path, format!("has no {CONFIG}: it is no run folder")));
    }
    interrupt::watch()?;
    let text = std::fs::read_to_string(&config_path).map_err(Error::io(&config_path))?;
    let mut config = Config::from_toml(&text, &config_path)?;
    let checkpoint = path.join(CHECKPOINT);
    let done = if checkpoint.exists() { Some(Checkpoint::iteration(&checkpoint)?) } else { None };
    let searching = quality::searching(&config, &path.join(QUALITY))?;
    if done == Some(config.iters) && !searching && finished(&path.join(SUMMARY), config.iters) {
        say(&format!("{}: the run is finished, all {} iterations are done", path.display(), config.iters));
        return Ok(Outcome::Done);
    }
    let written = |name: &str| given.iter().any(|g| g == name);
    config.threads = if written("threads") { overrides.threads } else { config.threads };
    config.simd = if written("simd") { overrides.simd } else { config.simd };
    config.quiet |= overrides.quiet;
    if written("cuda") || written("cuda-device") || written("cuda-check-every") {
        (config.cuda, config.cuda_device) = (overrides.cuda, overrides.cuda_device);
        config.cuda_check_every = overrides.cuda_check_every;
        config.validate()?;
    }

    let inputs = Inputs::read(&path.join(INPUTS))?;
    let material = inputs.load_again(&config, path)?;
    // A checkpoint stands for what was loaded, but not for a search's next fit.
    let load = config.load.as_deref().filter(|_| done.is_none() || searching);
    let loaded = load.map(|load| load_model(&inputs.locate(load, path))).transpose()?;
    let job = match done {
        None => {
            say(&format!("{}: no checkpoint yet, starting over", path.display()));
            // config.toml says how to quantize, whatever the loaded model said.
            Job::new(&config, &["qbits".into()], material, loaded)?
        }
        Some(iteration) => {
            say(&format!("{}: continuing after iteration {iteration}", path.display()));
            let job = Job::new(&Config { load: None, ..config.clone() }, &[], material, None)?;
            Job { config: Config { load: config.load, ..job.config }, loaded, ..job }
        }
    };
    let search = Search::resume(&job.config, &job.geometry.structure, &path.join(QUALITY))?;
    let folder = Folder::create(path, job.checkpoint_bytes())?;
    let ended = if done.is_none() { job.start(&folder, &inputs)? } else { job.go_on(&folder)? };
    job.end(&folder, &inputs, ended, search)
}

/// Whether the summary at `path` is of a run with all its iterations done.
fn finished(path: &Path, iters: usize) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    summary["iterations"] == iters && summary["finished"] == true
}

/// A fit that ended or was stopped, its folder written.
struct Ended {
    summary: Summary,
    iteration: usize,
    interrupted: bool,
}

/// A run before its first iteration: everything fits together.
struct Job {
    config: Config,
    geometry: Geometry,
    target: Target,
    sources: Vec<Source>,
    loaded: Option<Model>,
}

impl Job {
    fn new(config: &Config, given: &[String], material: Material, loaded: Option<Model>) -> Result<Self> {
        let Material { textures, sources } = material;
        let first = textures.first().ok_or_else(|| Error::config("IMAGE: no image"))?;
        let (width, height) = (first.width, first.height);
        let infos: Vec<TextureInfo> = textures.iter().map(|t| t.info.clone()).collect();
        let adopted = match &loaded {
            Some(model) => {
                check_loaded(&model.structure, (width, height), &infos)?;
                config.adopt(&model.structure, given)?
            }
            None => config.clone(),
        };
        let structure = adopted.resolve(width, height, infos)?;
        let config = adopted.complete(&structure);
        let target = Target::new(textures, structure.width, structure.height)?;
        Ok(Job { config, geometry: Geometry::new(structure)?, target, sources, loaded })
    }

    /// Size of a checkpoint, nearly.
    fn checkpoint_bytes(&self) -> usize {
        let latents: usize = self.geometry.structure.levels.iter().map(|level| level.values()).sum();
        12 * (latents + self.geometry.network.parameters())
    }

    /// Begins with the first iteration. An earlier run's files go one by one as ours replace them; what would outlive
    /// that and tell of the earlier run goes now. config.toml makes it a run folder: where it is gone it comes back last.
    fn start(&self, folder: &Folder, inputs: &Inputs) -> Result<Ended> {
        [CHECKPOINT, SUMMARY, RECORD].iter().try_for_each(|name| folder.remove(name))?;
        folder.clear_pictures(|_| false)?;
        inputs.write(&folder.file(INPUTS))?;
        folder.write_text(CONFIG, &self.config.to_toml())?;
        Views::of_target(&self.geometry.structure, &self.target).write_all(folder, "target")?;
        let mut noise = Noise::new(self.config.rng, self.config.seed);
        let state = State::new(match &self.loaded {
            Some(model) => model.parameters.clone(),
            None => {
                let (structure, network) = (&self.geometry.structure, &self.geometry.network);
                let mut parameters = init::parameters(structure, network, self.config.lat_init, &mut noise);
                if self.config.init == Init::Pca {
                    pca::start(structure, &self.target.planes, &mut parameters);
                }
                parameters
            }
        });
        let backend = self.backend(noise, state)?;
        self.train(folder, backend, Log::create(&folder.file(LOG))?, Progress::default(), Clock::start((0.0, 0.0)))
    }

    /// Goes on behind the checkpoint. Rows and pictures that a run without a stop would not have go.
    fn go_on(&self, folder: &Folder) -> Result<Ended> {
        let Config { iters, print_every, save_every, .. } = self.config;
        let (hash, mt) = (self.config.hash(), self.config.rng == Rng::Mt);
        let (structure, decoder) = (&self.geometry.structure, self.geometry.network.parameters());
        let checkpoint = Checkpoint::load(&folder.file(CHECKPOINT), &hash, structure, decoder, mt)?;
        let Checkpoint { progress, spent, state, .. } = checkpoint;
        let done = progress.iteration;
        if done > iters {
            return Err(Error::file(folder.file(CHECKPOINT), format!("is at iteration {done} of {iters}")));
        }
        let regular = |every: usize| move |it: usize| it <= done && (it.is_multiple_of(every) || it == iters);
        folder.clear_pictures(regular(save_every))?;
        let log = Log::resume(&folder.file(LOG), regular(print_every))?;
        let mut backend =
            self.backend(Noise::new(self.config.rng, self.config.seed), State::new(state.parameters.clone()))?;
        backend.set_state(state)?; // the noise's as well
        self.train(folder, backend, log, progress, Clock::start(spent))
    }

    fn backend(&self, noise: Noise, state: State) -> Result<Box<dyn Backend>> {
        let Some(device) = self.config.device() else { return self.cpu(noise, state) };
        let cuda = self.cuda(device, noise.clone(), state.clone())?;
        match self.config.cuda_check_every {
            0 => Ok(cuda),
            every => Ok(Box::new(Watched::new(cuda, self.cpu(noise, state)?, every))),
        }
    }

    fn cpu(&self, noise: Noise, state: State) -> Result<Box<dyn Backend>> {
        let options = CpuOptions::new(SimdLevel::new(self.config.simd)?, self.config.threads);
        let (geometry, target) = (self.geometry.clone(), self.target.planes.clone());
        Ok(Box::new(Cpu::new(options, geometry, target, &self.config.weights, noise, state)?))
    }

    fn cuda(&self, device: CudaDevice, noise: Noise, state: State) -> Result<Box<dyn Backend>> {
        let (geometry, target) = (self.geometry.clone(), self.target.planes.clone());
        cuda_check::cuda(device, geometry, target, &self.config.weights, noise, state)
    }

    fn train(
        &self,
        folder: &Folder,
        mut backend: Box<dyn Backend>,
        log: Log,
        from: Progress,
        clock: Clock,
    ) -> Result<Ended> {
        let structure = &self.geometry.structure;
        let mut recorder = Recorder {
            folder,
            structure,
            network: &self.geometry.network,
            coding: self.config.coding,
            config_hash: self.config.hash(),
            clock,
            log,
            shown: Shown::new(&self.config, from.iteration),
            last: None,
        };
        let progress = train(&self.config, structure, backend.as_mut(), &mut recorder, from)?;
        let Recorder { last, shown, .. } = recorder;
        drop(shown);
        let report = match last {
            Some(report) => report,
            None => measure(&self.config, structure, backend.as_mut(), &progress, None)?,
        };
        let summary = self.final_pictures(folder, backend.as_mut(), &report)?;
        let summary = summary.of_run(&self.config, &progress, clock.spent());
        summary.write(&folder.file(SUMMARY))?;
        Ok(Ended { summary, iteration: progress.iteration, interrupted: progress.interrupted })
    }

    /// Looks for the loss weights of the quality targets, if there are any, by fits after this first one, and tells how
    /// it ended.
    fn end(mut self, folder: &Folder, inputs: &Inputs, mut ended: Ended, search: Option<Search>) -> Result<Outcome> {
        if let Some(mut search) = search {
            while !ended.interrupted {
                let reached = ended.summary.textures.iter().map(|t| t.psnr_q_db.unwrap_or(f64::INFINITY)).collect();
                let next = search.next(&self.config.weights, reached, &folder.file(QUALITY))?;
                let Some(weights) = next else { break };
                self.config.weights = weights;
                ended = self.start(folder, inputs)?;
            }
        }
        print(&ended.summary.table())?;
        if !ended.interrupted {
            return Ok(Outcome::Done);
        }
        let (done, place) = (ended.iteration, folder.path().display());
        say(&format!("stopped after iteration {done}; --resume {place} goes on"));
        Ok(Outcome::Interrupted)
    }

    /// Writes the coded file, reads it back, writes the pictures as `decode` does, and measures those.
    fn final_pictures(&self, folder: &Folder, backend: &mut dyn Backend, report: &Report) -> Result<Summary> {
        let structure = &self.geometry.structure;
        let record = folder.file(RECORD);
        coded::save(&record, structure, &backend.state()?.parameters, self.config.coding)?;
        let coded = Coded::read(&record, MAX_TEXELS)?;
        let found = coded.measure(&self.target.planes, &self.target.rebuilt, backend)?;
        let (target_views, views) = (Views::of_target(structure, &self.target), Views::new(structure, &found.decoded));
        views.write_all(folder, "recon_q_final")?;
        write_side_by_side(folder, &target_views, &views)?;
        Ok(Summary::new(&Facts {
            config: &self.config,
            structure,
            weights: coded.record.decoder.len(),
            sources: &self.sources,
            report,
            found: &found,
            backend: (backend.name(), backend.device()),
        }))
    }
}

/// A loaded model is of the images' size and channels.
fn check_loaded(model: &Structure, size: (usize, usize), images: &[TextureInfo]) -> Result<()> {
    let said = |width: usize, height: usize, textures: &[TextureInfo]| {
        let channels: Vec<_> = textures.iter().map(|t| t.channels.to_string()).collect();
        format!("{width}x{height} texels with {} channels", channels.join("+"))
    };
    let has = said(model.source_width, model.source_height, &model.textures);
    let wanted = said(size.0, size.1, images);
    let message = || format!("--load: the model is of {has}, the images are {wanted}");
    if has != wanted {
        return Err(Error::config(message()));
    }
    match model.textures.iter().zip(images).find(|(a, b)| a.sources != b.sources) {
        None => Ok(()),
        Some((of, image)) => Err(Error::config(format!(
            "--load: the model has other constant, copied or rebuilt channels of {} than {}",
            of.name, image.name
        ))),
    }
}
