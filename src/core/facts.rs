//! The published facts: every manager may read them, only the file that owns a slice can change it.

use crate::event::Machine;
use crate::settings::Settings;
use alloc::boxed::Box;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Set once, by the Boot event.
    boot: Option<Box<BootFacts>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootFacts {
    pub settings: Settings,
    pub machine: Machine,
}

impl Facts {
    pub(crate) fn set_boot(&mut self, settings: Settings, machine: Machine) {
        self.boot = Some(Box::new(BootFacts { settings, machine }));
    }

    pub fn settings(&self) -> &Settings {
        &self.boot.as_ref().expect("asked after Boot").settings
    }

    pub fn machine(&self) -> &Machine {
        &self.boot.as_ref().expect("asked after Boot").machine
    }
}
