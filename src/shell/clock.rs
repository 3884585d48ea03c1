//! The two clocks of a step, in whole microseconds.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;
use steplet_core::time::{Mono, Now, Wall};

const MICRO: i64 = 1_000;
/// A wall clock that is slewed by less than this is taken to stand still: the tape then need not
/// repeat it, while a step of the clock is still noticed within one turn.
const SLACK: i64 = 1_000_000;
/// Both clocks cannot be read at once. A reading that took longer than this says nothing.
const APART_MAX: i64 = 200_000;

/// 2026-01-01: no clock that is right shows less.
pub const PLAUSIBLE: Duration = Duration::from_secs(1_767_225_600);

/// Whether the wall clock can be right: it is not before this program was made.
pub fn is_plausible() -> bool {
    let seconds = read(ClockId::CLOCK_REALTIME) / 1_000_000_000;
    u64::try_from(seconds).is_ok_and(|seconds| seconds >= PLAUSIBLE.as_secs())
}

pub struct Clock {
    /// Wall minus mono, in nanoseconds.
    offset: i64,
}

impl Clock {
    pub fn new() -> Clock {
        Clock { offset: read(ClockId::CLOCK_REALTIME) - read(ClockId::CLOCK_BOOTTIME) }
    }

    /// Looks whether somebody has set the wall clock; once a turn.
    pub fn look(&mut self) {
        let before = read(ClockId::CLOCK_BOOTTIME);
        let wall = read(ClockId::CLOCK_REALTIME);
        let apart = read(ClockId::CLOCK_BOOTTIME) - before;
        if apart <= APART_MAX {
            self.offset = steer(self.offset, wall - before);
        }
    }

    /// The instant of the next step. The monotonic clock goes on while the machine is suspended.
    pub fn now(&self) -> Now {
        let mono = read(ClockId::CLOCK_BOOTTIME);
        let mono = mono - mono % MICRO;
        let wall = mono + self.offset;
        Now { mono: Mono(mono.cast_unsigned()), wall: Wall(wall - wall.rem_euclid(MICRO)) }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

/// The monotonic clock alone, for the measurements of the shell.
pub fn mono() -> Mono {
    Mono(read(ClockId::CLOCK_BOOTTIME).cast_unsigned())
}

/// The time that this thread has spent on a processor: in a long turn, the rest was spent waiting
/// for one.
pub fn cpu() -> Duration {
    Duration::from_nanos(read(ClockId::CLOCK_THREAD_CPUTIME_ID).cast_unsigned())
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock).expect("Linux has this clock");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

fn steer(offset: i64, seen: i64) -> i64 {
    if (seen - offset).abs() > SLACK { seen } else { offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_moves_the_offset() {
        let check = |offset, seen, want| assert_eq!(steer(offset, seen), want);
        check(0, 0, 0);
        check(0, 1_000_000, 0);
        check(0, -1_000_000, 0);
        check(0, 1_000_001, 1_000_001);
        check(5_000_000, -3_600_000_000_000, -3_600_000_000_000);
    }

    #[test]
    fn instants_are_whole_microseconds_and_never_go_back() {
        let mut clock = Clock::new();
        let mut last = clock.now();
        for _ in 0..1000 {
            clock.look();
            let now = clock.now();
            assert!(now.mono >= last.mono);
            assert_eq!((now.mono.0 % 1_000, now.wall.0 % 1_000), (0, 0));
            last = now;
        }
    }
}
