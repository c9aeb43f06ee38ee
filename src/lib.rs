//! ntc-es: derivative-free neural texture compression.
#![warn(missing_docs)]

pub mod backend;
pub mod cli;
pub mod config;
pub mod error;
pub mod model;
