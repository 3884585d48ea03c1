//! What the service manager is told: that the agent is up, and then that it still works
//! (sd_notify(3), sd_watchdog_enabled(3)).
//!
//! Upstream: pkg/kubelet/watchdog (v1.36).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use steplet_core::time::{Mono, Span};

/// Tells the service manager that the agent is up, if it wants to know.
pub fn notify_ready() {
    tell_manager("READY=1\n");
}

/// The signs of life that `WatchdogSec=` of the service asks for; without them the service manager
/// kills the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    every: Span,
    next: Mono,
}

impl Watchdog {
    /// As the environment asks for it; none is the usual case.
    ///
    /// Errors: a sentence for people, when it asks for what cannot be kept.
    pub fn wanted() -> Result<Option<Watchdog>, String> {
        let var = |name| env::var(name).unwrap_or_default();
        of(&var("WATCHDOG_USEC"), &var("WATCHDOG_PID"), std::process::id())
    }

    /// When the next sign is due.
    pub fn next(&self) -> Mono {
        self.next
    }

    /// Gives a sign when one is due. An agent that does not work gives none, and is restarted.
    pub fn tend(&mut self, now: Mono, problem: impl FnOnce() -> Option<&'static str>) {
        if self.next > now {
            return;
        }
        self.next = now + self.every;
        match problem() {
            None => tell_manager("WATCHDOG=1\n"),
            Some(problem) => log::error!("No sign of life for the service manager: {problem}"),
        }
    }
}

/// Twice in the time that is given, as upstream.
fn of(micros: &str, pid: &str, own: u32) -> Result<Option<Watchdog>, String> {
    // A child of somebody who is watched is not watched itself.
    if micros.is_empty() || !(pid.is_empty() || pid == own.to_string()) {
        return Ok(None);
    }
    let micros: u64 = micros
        .parse()
        .map_err(|_| format!("WATCHDOG_USEC={micros} is no number of microseconds"))?;
    if micros <= 1_000_000 {
        return Err(format!(
            "WATCHDOG_USEC={micros}: WatchdogSec= of the service must be above one second"
        ));
    }
    let every = Span(micros.saturating_mul(1_000) / 2);
    Ok(Some(Watchdog { every, next: Mono(0) }))
}

fn tell_manager(what: &str) {
    if let Some(path) = env::var_os("NOTIFY_SOCKET")
        && let Err(error) = tell(&path, what)
    {
        log::warn!("Cannot tell {} {}: {error}", path.display(), what.trim_end());
    }
}

fn tell(path: &OsStr, what: &str) -> io::Result<()> {
    let address = match path.as_encoded_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold up the loop.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(what.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    #[test]
    fn the_manager_hears() {
        let scratch = Scratch::new("notify");
        let path = scratch.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        tell(path.as_os_str(), "READY=1\n").unwrap();
        let mut said = [0; 64];
        let n = manager.recv(&mut said).unwrap();
        assert_eq!(&said[..n], b"READY=1\n");
        // One that does not read: an error in the end, and no waiting.
        assert!((0..10_000).any(|_| tell(path.as_os_str(), "WATCHDOG=1\n").is_err()));
    }

    #[test]
    fn what_is_asked_for() {
        let check = |micros: &str, pid: &str, want: Result<Option<u64>, &str>| {
            let got = of(micros, pid, 42).map(|w| w.map(|w| w.every.millis()));
            assert_eq!(got, want.map_err(str::to_owned), "{micros:?} {pid:?}");
        };
        check("", "", Ok(None));
        check("", "42", Ok(None));
        check("30000000", "", Ok(Some(15_000)));
        check("30000000", "42", Ok(Some(15_000)));
        check("30000000", "41", Ok(None));
        check("1000001", "42", Ok(Some(500)));
        let short = "WATCHDOG_USEC=1000000: WatchdogSec= of the service must be above one second";
        check("1000000", "42", Err(short));
        check("soon", "42", Err("WATCHDOG_USEC=soon is no number of microseconds"));
    }

    #[test]
    fn signs_come_in_time_and_only_of_health() {
        let mut dog = of("2000000", "", 42).unwrap().unwrap();
        let at = |millis| Mono(0) + Span::from_millis(millis);
        let mut asked = 0;
        for millis in [5_000, 5_900, 6_000, 6_100, 7_500] {
            dog.tend(at(millis), || {
                asked += 1;
                Some("in a test")
            });
        }
        assert_eq!((asked, dog.next()), (3, at(8_500)));
    }
}
