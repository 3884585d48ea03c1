//! People and controllers at work in the cluster: pods are bound to the node, labelled, deleted with patience or
//! without, and come back under their names.

use super::workload::{KINDS, Pod, manifest, pod};
use crate::agenda::Agenda;
use crate::clock::At;
use crate::dice::Dice;
use crate::setup::NODE;
use crate::world::World;
use serde_json::{Value, json};
use steplet_core::time::Span;

/// What somebody will do.
#[derive(Clone, Debug)]
enum Deed {
    Create(usize),
    /// With this grace, or the pod's own.
    Delete(usize, Option<i64>),
    /// Draw something to do, and again later.
    Anything,
}

pub struct Users {
    dice: Dice,
    pods: Vec<Pod>,
    agenda: Agenda<Deed>,
}

/// Who finds a name taken tries again after so long.
const AGAIN: Span = Span::from_secs(3);

impl Users {
    /// `count` pods, created within the first half minute; none where there is no cluster.
    pub fn new(mut dice: Dice, count: usize, world: &mut World) -> Users {
        let mut agenda = Agenda::default();
        if world.setup().settings.api.is_none() {
            return Users { dice, pods: Vec::new(), agenda };
        }
        // So that lists come in pages.
        world.api.page_most = dice.below(4) as usize;
        let pods: Vec<Pod> = (0..count)
            .map(|i| {
                let kind = *dice.pick(&KINDS);
                let mut pod = pod(format!("api-{i}"), kind, &mut dice);
                pod.pinned = false;
                pod
            })
            .collect();
        for i in 0..pods.len() {
            agenda.plan(world.at() + dice.millis(0, 30_000), Deed::Create(i));
        }
        agenda.plan(world.at() + Span::from_secs(60), Deed::Anything);
        Users { dice, pods, agenda }
    }

    pub fn next_at(&self) -> Option<At> {
        self.agenda.next_at()
    }

    /// Does the next thing that is due.
    pub fn act(&mut self, world: &mut World) {
        match self.agenda.pop() {
            Some((at, Deed::Create(i))) => {
                let taken = !self.create(world, i);
                let again = taken.then_some(Deed::Create(i));
                again.into_iter().for_each(|deed| self.agenda.plan(at + AGAIN, deed));
            }
            Some((_, Deed::Delete(i, grace))) => self.delete(world, i, grace),
            Some((at, Deed::Anything)) => {
                self.anything(world);
                self.agenda.plan(at + self.dice.millis(5_000, 90_000), Deed::Anything);
            }
            None => {}
        }
    }

    /// Everybody brings to an end what was begun, and goes home.
    pub fn rest(&mut self, world: &mut World) {
        while let Some((_, deed)) = self.agenda.pop() {
            match deed {
                // A name that is still taken stays as it is.
                Deed::Create(i) => drop(self.create(world, i)),
                Deed::Delete(i, grace) => self.delete(world, i, grace),
                Deed::Anything => {}
            }
        }
    }

    /// Back to work.
    pub fn resume(&mut self, world: &World) {
        if !self.pods.is_empty() {
            self.agenda.plan(world.at() + Span::from_secs(7), Deed::Anything);
        }
    }

    fn object<'a>(&self, world: &'a World, i: usize) -> Option<&'a Value> {
        world.api.object("pods", "default", &self.pods[i].name)
    }

    fn create(&mut self, world: &mut World, i: usize) -> bool {
        let mut object = manifest(&self.pods[i]);
        object["spec"]["nodeName"] = json!(NODE);
        object["metadata"]["labels"] = json!({"app": self.pods[i].name});
        world.api_create(object).is_ok()
    }

    fn delete(&mut self, world: &mut World, i: usize, grace: Option<i64>) {
        // It may be gone already.
        let _ = world.api_delete(("pods", "default", &self.pods[i].name), grace);
    }

    fn anything(&mut self, world: &mut World) {
        if self.pods.is_empty() {
            return;
        }
        let i = self.dice.below(self.pods.len() as u64) as usize;
        let at = world.at();
        if self.object(world, i).is_none() {
            self.pods[i].edits += 1;
            self.create(world, i);
            return;
        }
        let later = at + self.dice.millis(100, 60_000);
        match self.dice.below(10) {
            0..3 => self.delete(world, i, None),
            3 => {
                let grace = *self.dice.pick(&[1, 3, 20, 60, 90]);
                self.delete(world, i, Some(grace));
            }
            // Without patience: at once, or after a while.
            4 => self.delete(world, i, Some(0)),
            5 => {
                self.delete(world, i, None);
                self.agenda.plan(later, Deed::Delete(i, Some(0)));
            }
            6 => {
                self.delete(world, i, Some(60));
                self.agenda.plan(later, Deed::Delete(i, Some(2)));
            }
            // A controller that wants it back.
            7 => {
                self.delete(world, i, Some(0));
                self.agenda.plan(at + self.dice.millis(0, 500), Deed::Create(i));
            }
            8 => {
                self.delete(world, i, None);
                self.agenda.plan(at + AGAIN, Deed::Create(i));
            }
            _ => self.label(world, i),
        }
    }

    fn label(&mut self, world: &mut World, i: usize) {
        self.pods[i].edits += 1;
        let annotations = json!({"edit": self.pods[i].edits.to_string()});
        let patch = json!({"kind": "Pod", "metadata": {"name": self.pods[i].name,
            "annotations": annotations, "labels": {"edit": self.pods[i].edits.to_string()}}});
        let _ = world.api_patch("", &patch);
    }
}
