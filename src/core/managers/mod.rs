//! The managers: state machines that know facts and notes, and never each other.

pub mod containers;
pub mod pods;
pub mod server;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Managers {
    pub(crate) server: server::Server,
}
