//! The tape: what is written can be read, replayed, edited and shown, whatever happens to its files.

mod commands;
#[path = "../../src/shell/scratch.rs"]
mod scratch;
mod segments;
mod stream;
mod world;
