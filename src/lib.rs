//! ntc-es: derivative-free neural texture compression.
#![warn(missing_docs)]

pub mod backend;
pub mod error;
pub mod files;
pub mod metrics;
pub mod model;
pub mod texture;
