//! Ctrl-C: the first asks the run to end after its iteration, the second ends the program.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a program that Ctrl-C ended.
pub const EXIT_CODE: u8 = 130;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C, and the signals to terminate and to hang up.
pub fn watch() -> Result<()> {
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(EXIT_CODE));
        }
    };
    match ctrlc::set_handler(handler) {
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        Err(e) => Err(Error::State(format!("Ctrl-C cannot be watched: {e}"))),
    }
}

/// Whether the user asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
