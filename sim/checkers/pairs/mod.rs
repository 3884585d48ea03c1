//! What is asked is answered, once: calls of the agent, and requests at its ports.

pub mod tokens;
pub mod visitors;

use super::Judge;
