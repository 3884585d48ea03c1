//! The world around a core: clocks that step, a runtime that misbehaves, and judges that share no code
//! with the core. A simulated hour passes in a fraction of a second, and one seed gives one run.
#![forbid(unsafe_code)]

pub mod agenda;
mod carry;
pub mod checkers;
pub mod clock;
mod cluster;
pub mod dice;
pub mod doors;
pub mod ledger;
mod levers;
pub mod manifest;
pub mod scene;
pub mod setup;
pub mod swarm;
mod told;
pub mod trace;
pub mod transcript;
pub mod world;
