//! ntc-es: derivative-free neural texture compression.
#![warn(missing_docs)]

pub mod backend;
pub mod error;
pub mod model;
pub mod noise;
