//! Three clocks: the world's own time, which nobody inside can read; the monotonic clock, which starts
//! at each boot of the machine; and the wall clock, which may be wrong and may step.

use std::ops::Add;
use steplet_core::time::{Mono, Now, Span, Wall};

/// An instant of the world, in nanoseconds since the simulation began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub u64);

impl Add<Span> for At {
    type Output = At;
    fn add(self, span: Span) -> At {
        At(self.0.saturating_add(span.0))
    }
}

impl At {
    pub fn since(self, earlier: At) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

#[derive(Clone, Debug)]
pub struct Clock {
    at: At,
    /// When the machine booted; `Mono` counts from just before it.
    booted: At,
    /// What the wall clock shows, less the world's time.
    wall: i64,
}

/// The machine has been up for a while when the agent first starts.
const UP: u64 = 5_000_000_000;
/// 2026-11-30T12:00:00Z.
pub const EPOCH: Wall = Wall(1_796_040_000_000_000_000);

impl Clock {
    pub fn new(wall: Wall) -> Clock {
        Clock { at: At(0), booted: At(0), wall: wall.0 }
    }

    pub fn at(&self) -> At {
        self.at
    }

    /// Time only moves on.
    pub fn advance(&mut self, to: At) {
        assert!(to >= self.at, "the world's time went back");
        self.at = to;
    }

    pub fn now(&self) -> Now {
        Now { mono: Mono(self.at.since(self.booted).0 + UP), wall: self.wall() }
    }

    pub fn wall(&self) -> Wall {
        Wall(self.wall + self.at.0 as i64)
    }

    /// The world's instant at which the monotonic clock shows `mono`.
    pub fn when(&self, mono: Mono) -> At {
        At((self.booted.0 + mono.0).saturating_sub(UP))
    }

    /// Someone sets the wall clock; the monotonic one does not care.
    pub fn step_wall(&mut self, by_nanos: i64) {
        self.wall += by_nanos;
    }

    /// The wall clock shows this instant from now on.
    pub fn set_wall(&mut self, wall: Wall) {
        self.wall = wall.0 - self.at.0 as i64;
    }

    /// The monotonic clock starts again.
    pub fn reboot(&mut self) {
        self.booted = self.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_step_leaves_the_monotonic_clock_alone() {
        let mut clock = Clock::new(EPOCH);
        clock.advance(At(0) + Span::from_secs(10));
        let before = clock.now();
        clock.step_wall(-3_600_000_000_000);
        let after = clock.now();
        assert_eq!(before.mono, after.mono);
        assert_eq!(before.wall.0 - after.wall.0, 3_600_000_000_000);
        assert_eq!(clock.when(after.mono), clock.at());
    }

    #[test]
    fn a_reboot_starts_the_monotonic_clock_again() {
        let mut clock = Clock::new(EPOCH);
        clock.advance(At(0) + Span::from_secs(100));
        clock.reboot();
        assert_eq!(clock.now().mono, Mono(UP));
        assert_eq!(clock.when(Mono(UP)), clock.at());
    }
}
