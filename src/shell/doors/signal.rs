//! Signals as events: SIGTERM, SIGINT and SIGHUP end the agent, SIGCHLD tells that a helper has ended.
//! Those that do nothing to a program written in Go do nothing to this one.
//!
//! Upstream: the table of signals in Go's runtime (runtime/sigtab_linux_generic.go).

use super::{Door, Inbox};
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use steplet_core::event;

/// By default they end a program. Scripts send some to whole groups; SIGXFSZ comes with a limit on file
/// sizes, where the failed write says all.
const WITHOUT_EFFECT: [Signal; 8] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
];

pub struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Blocks the signals, so that they come through the descriptor only. A program that is started
    /// later begins with none blocked: the standard library sees to that.
    pub fn new(registry: &Registry) -> io::Result<Signals> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
            mask.add(signal);
        }
        for signal in WITHOUT_EFFECT {
            mask.add(signal);
        }
        if !is_ignored(Signal::SIGHUP) {
            mask.add(Signal::SIGHUP);
        }
        mask.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let descriptor = SignalFd::with_flags(&mask, flags)?;
        let raw = descriptor.as_fd().as_raw_fd();
        registry.register(&mut SourceFd(&raw), Door::Signal.token(0), Interest::READABLE)?;
        Ok(Signals { descriptor })
    }

    pub fn ready(&self, inbox: &mut Inbox) {
        loop {
            match self.descriptor.read_signal() {
                Ok(Some(info)) => match info.ssi_signo.cast_signed() {
                    libc::SIGTERM => inbox.push(event::Event::Signal(event::Signal::Terminate)),
                    // The terminal was closed: for pods in the foreground the same as Ctrl-C.
                    libc::SIGINT | libc::SIGHUP => {
                        inbox.push(event::Event::Signal(event::Signal::Interrupt))
                    }
                    // SIGCHLD: the turn that it has begun is all that is needed. Others need none.
                    _ => {}
                },
                Ok(None) => return,
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return log::error!("Cannot read signals: {error}"),
            }
        }
    }
}

/// Whether whoever started this program, such as nohup(1), wants the signal to do nothing.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    ignored.unwrap_or(0) & (1 << (signal as u32 - 1)) != 0
}
