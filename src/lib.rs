//! ntc-es: derivative-free neural texture compression.
#![warn(missing_docs)]

pub mod backend;
pub mod bench;
pub mod bitstream;
pub mod cli;
pub mod config;
pub mod error;
pub mod estimate;
pub mod eval;
pub mod files;
pub mod metrics;
pub mod model;
pub mod noise;
pub mod plot;
pub mod run;
pub mod sweep;
pub mod texture;
pub mod train;
