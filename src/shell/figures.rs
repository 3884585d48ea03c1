//! Figures of the process itself, for `/metrics`: what the core cannot know.

use procfs::process::Process;
use std::fmt::Write;

/// The `process_*` series that every Kubernetes component exports, as Prometheus text. A figure that the kernel
/// does not give is left out.
pub fn process() -> String {
    let mut out = String::new();
    let Ok(stat) = Process::myself().and_then(|me| Ok((me.stat()?, me))) else { return out };
    let (stat, me) = stat;
    let ticks = procfs::ticks_per_second() as f64;
    let cpu = (stat.utime + stat.stime) as f64 / ticks;
    let rss = stat.rss * procfs::page_size();
    let mut series = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    let help = "Total user and system CPU time spent in seconds.";
    series("process_cpu_seconds_total", "counter", help, cpu);
    series("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", rss as f64);
    let help = "Virtual memory size in bytes.";
    series("process_virtual_memory_bytes", "gauge", help, stat.vsize as f64);
    series("steplet_threads", "gauge", "Threads of the agent.", stat.num_threads as f64);
    if let Ok(count) = me.fd_count() {
        series("process_open_fds", "gauge", "Number of open file descriptors.", count as f64);
    }
    out
}
