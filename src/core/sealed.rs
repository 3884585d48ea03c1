//! Secrets as the core knows them: something that a door can open on the way out, and nobody else.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Stands for a secret in the shell's vault. The same secret has the same seal as long as the process lives. It can
/// be kept, compared, hashed and written to a tape, since its number says nothing of what is behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sealed(u64);

impl Sealed {
    /// For the vault, which numbers what it keeps.
    pub const fn numbered(number: u64) -> Sealed {
        Sealed(number)
    }

    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sealed:{}", self.0)
    }
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
