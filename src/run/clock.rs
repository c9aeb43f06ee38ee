//! Time and memory that a run takes, and what it ran on.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// Counts the seconds of this sitting on top of earlier ones.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    cpu: f64,
    earlier: (f64, f64),
}

impl Clock {
    /// Starts now; `earlier` are seconds on the wall and on all CPUs.
    pub fn start(earlier: (f64, f64)) -> Self {
        Clock { started: Instant::now(), cpu: cpu_seconds(), earlier }
    }

    /// Seconds on the wall and on all CPUs, of all sittings.
    pub fn spent(&self) -> (f64, f64) {
        (self.earlier.0 + self.started.elapsed().as_secs_f64(), self.earlier.1 + cpu_seconds() - self.cpu)
    }
}

/// CPU seconds of this process, all threads.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The most memory that this process held at once, in bytes, where the system tells.
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The CPU's model name, where the system tells.
pub fn cpu_model() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
