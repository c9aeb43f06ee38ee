//! Grids of runs: a plan becomes cells, cells become rows of results.csv, rows become tables and plots.
//!
//! Every cell is a process of its own, so that its CPU seconds and memory are its own and a crash stays a row.

mod cells;
pub mod curves;
pub mod plan;
pub mod report;
mod table;

pub use cells::{Limits, run};
pub use plan::{Cell, Plan};
pub use table::{Row, Table, header};
