//! Faults that tests plant to see whether the simulator's checkers find them. Without the feature `planted`, none
//! can be switched on and the questions cost nothing.

/// Whether fault `number` is planted in this process.
#[cfg(not(feature = "planted"))]
pub(crate) fn planted(_number: u8) -> bool {
    false
}

#[cfg(feature = "planted")]
pub(crate) use chosen::planted;
#[cfg(feature = "planted")]
pub use chosen::{NAMES, plant};

#[cfg(feature = "planted")]
mod chosen {
    use core::sync::atomic::{AtomicU8, Ordering};

    /// The only static of the crate: a test process chooses one fault for its whole life.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// What is planted, by number from 1.
    pub const NAMES: [&str; 11] = [
        "the exit of a container is lost",
        "the attempt of a restarted container is not raised",
        "the grace period is doubled",
        "an older list overwrites what was learned later",
        "a terminating pod goes on starting containers",
        "crash back-off is not observed",
        "orphans are stopped before the sources were read",
        "leftover cgroups are never removed",
        "sandboxes are stopped while containers still have their grace",
        "a snapshot forgets the timers of the workers",
        "a pod that ends gets no grace",
    ];

    /// Plants fault `number` (0: none) for the rest of this process.
    pub fn plant(number: u8) {
        CHOSEN.store(number, Ordering::Relaxed);
    }

    pub(crate) fn planted(number: u8) -> bool {
        CHOSEN.load(Ordering::Relaxed) == number
    }
}
