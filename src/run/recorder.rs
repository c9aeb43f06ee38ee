//! What a run writes while it goes on: rows, pictures, the model and the checkpoint.

use super::checkpoint::Checkpoint;
use super::clock::Clock;
use super::folder::{CHECKPOINT, Folder, MODEL, RECORD};
use super::log::Log;
use super::pictures::{Views, write_latents};
use super::progress::Shown;
use super::{coded, interrupt, model_file};
use crate::backend::Backend;
use crate::error::Result;
use crate::model::mlp::Network;
use crate::model::structure::{Coding, Structure};
use crate::train::{Progress, Report, Watch};

/// Follows a run into its folder.
pub struct Recorder<'a> {
    /// Where everything goes.
    pub folder: &'a Folder,
    /// The model's shape.
    pub structure: &'a Structure,
    /// Its decoder.
    pub network: &'a Network,
    /// How its file is coded.
    pub coding: Coding,
    /// Hash of the settings.
    pub config_hash: String,
    /// Time of all sittings.
    pub clock: Clock,
    /// The table.
    pub log: Log,
    /// The bar or the lines.
    pub shown: Shown,
    /// What the last save was about.
    pub last: Option<Report>,
}

impl Watch for Recorder<'_> {
    fn tick(&mut self, iteration: usize) {
        self.shown.tick(iteration);
    }

    fn report(&mut self, report: &Report) -> Result<()> {
        self.shown.report(report);
        self.log.add(report, self.clock.spent().1)
    }

    /// The checkpoint comes last: what it speaks of is there.
    fn save(&mut self, progress: &Progress, report: &Report, backend: &mut dyn Backend) -> Result<()> {
        let state = backend.state()?;
        let decoded = backend.decode(None)?;
        let iteration = progress.iteration;
        Views::new(self.structure, &decoded).write_all(self.folder, &format!("recon_{iteration:06}"))?;
        write_latents(self.folder, self.structure, &state.parameters, iteration)?;
        model_file::save(&self.folder.file(MODEL), self.structure, self.network, &state.parameters)?;
        coded::save(&self.folder.file(RECORD), self.structure, &state.parameters, self.coding)?;
        let (config_hash, spent) = (self.config_hash.clone(), self.clock.spent());
        let checkpoint = Checkpoint { config_hash, progress: *progress, spent, state };
        checkpoint.save(&self.folder.file(CHECKPOINT), self.structure)?;
        self.last = Some(report.clone());
        Ok(())
    }

    fn stop(&self) -> bool {
        interrupt::asked()
    }
}
