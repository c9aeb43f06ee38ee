//! The coded file: one container, two codings (METHOD, chapter 15, has it byte by byte).
//!
//! [`Record`] is what a file holds; [`Record::encode`] and [`Record::decode`] are the two ways. No input makes a reader
//! panic, allocate before the header is found right, or work more than its bytes allow.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod container;
mod context;
pub mod fixed;
mod halves;
pub mod harness;
mod header;
mod mixing;
mod pack;
pub mod part;
pub mod price;
pub mod range_coder;
pub mod record;

#[cfg(test)]
mod tests;

pub use record::{Cost, Record};

/// What is wrong with a file, in words that follow its name.
type Result<T> = std::result::Result<T, String>;

fn refuse<T>(message: String) -> Result<T> {
    Err(message)
}
