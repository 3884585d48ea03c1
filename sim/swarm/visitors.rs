//! People at the agent's ports: they look, read logs, open streams, and go away before they are answered.

use crate::dice::Dice;
use crate::doors::listen::Visit;
use crate::world::World;
use steplet_core::event::{Listener, User};

pub struct Visitors {
    dice: Dice,
    /// What was asked last.
    last: String,
}

const GOOD_TOKEN: &str = "token-of-bob";

impl Visitors {
    pub fn new(dice: Dice, world: &mut World) -> Visitors {
        world.api.users.insert(GOOD_TOKEN.into(), "bob".into());
        Visitors { dice, last: "/pods".into() }
    }

    /// The next one comes; now and then the last one has lost patience.
    pub fn come(&mut self, world: &mut World) {
        if self.dice.chance(20) {
            world.leave(&self.last);
        }
        let target = self.target(world);
        let streams = ["/exec/", "/attach/", "/portForward/"];
        let upgrade = streams.iter().any(|head| target.starts_with(head));
        let run = target.starts_with("/run/");
        let mut visit = Visit::get(Listener::Secure, &target);
        visit.method = if upgrade || run { "POST".into() } else { "GET".into() };
        visit.upgrade = upgrade;
        match self.dice.below(4) {
            0 => visit.bearer = Some(GOOD_TOKEN.into()),
            1 => visit.bearer = Some("made-up".into()),
            2 => {
                let user = User { name: "alice".into(), ..User::default() };
                visit.certificate = Some(Ok(user));
            }
            _ => {}
        }
        world.visit(visit);
        self.last = target;
    }

    fn target(&mut self, world: &World) -> String {
        let pods = world.core().map(|core| core.facts().sources.pods());
        let pods: Vec<_> = pods.into_iter().flat_map(|pods| pods.values()).collect();
        if pods.is_empty() || self.dice.chance(40) {
            return "/pods".into();
        }
        let pod = self.dice.pick(&pods);
        let meta = &pod.metadata;
        let place = format!("{}/{}", meta.namespace, meta.name);
        let container = pod.spec.containers.first().map_or("app", |container| &container.name);
        match self.dice.below(5) {
            0 => format!("/exec/{place}/{container}?command=sh&output=1"),
            1 => format!("/attach/{place}/{container}?output=1"),
            2 => format!("/portForward/{place}"),
            3 => format!("/run/{place}/{container}?cmd=echo"),
            _ => format!("/containerLogs/{place}/{container}?follow=true"),
        }
    }
}
