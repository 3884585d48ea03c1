//! A run of a seed: hours of work and trouble, with a quiet time now and then in which all must settle.

pub mod faults;
mod users;
mod visitors;
mod workload;

use crate::checkers::{Judges, settled};
use crate::clock::At;
use crate::dice::Dice;

use crate::setup::Setup;
use crate::trace::{Violation, Witness};

use crate::world::World;
use faults::Faults;
use std::collections::BTreeMap;
use steplet_core::event::Listener;
use steplet_core::settings::AuthSettings;
use steplet_core::time::Span;
use users::Users;
use visitors::Visitors;
use workload::Workload;

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub span: Span,
    pub pods: usize,
    pub faults: bool,
}

impl Plan {
    /// An hour of ten pods and every fault.
    pub fn new(seed: u64) -> Plan {
        Plan { seed, span: Span::from_secs(3_600), pods: 10, faults: true }
    }
}

#[derive(Debug)]
pub struct Verdict {
    pub steps: u64,
    /// The chained hash of the run, in lower hex.
    pub chain: String,
    pub violations: Vec<Violation>,
    /// How often each kind of fault struck.
    pub fired: BTreeMap<&'static str, u64>,
}

/// One round: trouble, then quiet.
const TROUBLE: Span = Span::from_secs(24 * 60);
/// Five minutes, and what a last back-off of five minutes may overhang.
const QUIET: Span = Span::from_secs(6 * 60);
/// A person looks at the node.
const LOOK: Span = Span::from_secs(60);
/// More than this is one broken thing over and over.
const VIOLATIONS_MOST: usize = 50;

pub fn run(plan: &Plan, witness: Option<Box<dyn Witness>>) -> Verdict {
    let mut setup = Setup::new(plan.seed);
    if plan.seed.is_multiple_of(3) {
        setup.settings.static_pod_url = "http://manifests.example/pods".into();
    }
    let dice = Dice::new(plan.seed);
    // Half of the nodes are members of a cluster.
    if dice.child(12).chance(50) {
        setup.join();
        // Where they can be told apart, half of them tell their visitors apart.
        if dice.child(14).chance(50) {
            setup.settings.auth = Some(AuthSettings { anonymous: true, ..AuthSettings::default() });
        }
    }
    let mut world = World::new(setup);
    world.watch_by(Box::new(Judges::all()));
    if let Some(witness) = witness {
        world.watch_by(witness);
    }
    // There, four of ten pods are the API server's.
    let of_cluster = if world.setup().settings.api.is_some() { plan.pods * 2 / 5 } else { 0 };
    let mut workload = Workload::new(dice.child(10), plan.pods - of_cluster, &world);
    let mut users = Users::new(dice.child(13), of_cluster, &mut world);
    let mut visitors = Visitors::new(dice.child(15), &mut world);
    let mut faults = Faults::new(dice.child(11), world.at());
    world.start_agent();
    let end = world.at() + plan.span;
    while world.at() < end && world.violations.len() < VIOLATIONS_MOST {
        let pause = (world.at() + TROUBLE).min(At(end.0.saturating_sub(QUIET.0)));
        trouble(plan, &mut world, (&mut workload, &mut users, &mut visitors), &mut faults, pause);
        workload.rest(&mut world);
        users.rest(&mut world);
        faults.heal(&mut world, QUIET + Span::from_secs(20));
        look_until(&mut world, (pause + QUIET).min(end));
        let unsettled = settled::check(&world);
        world.violations.extend(unsettled);
        workload.resume(world.at());
        users.resume(&world);
    }
    let fired = faults.fired(&world);
    let World { steps, chain, violations, .. } = world;
    let chain = chain.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Verdict { steps, chain, violations, fired }
}

fn trouble(
    plan: &Plan,
    world: &mut World,
    (workload, users, visitors): (&mut Workload, &mut Users, &mut Visitors),
    faults: &mut Faults,
    until: At,
) {
    let mut look = world.at() + LOOK;
    while world.at() < until && world.violations.len() < VIOLATIONS_MOST {
        let work = workload.next_at().unwrap_or(until);
        let deed = users.next_at().unwrap_or(until);
        let fault = if plan.faults { faults.next_at() } else { until };
        let next = work.min(deed).min(fault).min(look).min(until);
        world.run_until(next.max(world.at()));
        if look <= next {
            visitors.come(world);
            look = world.at() + LOOK;
        } else if work <= next {
            workload.act(world);
        } else if deed <= next {
            users.act(world);
        } else if fault <= next && plan.faults {
            faults.act(world, workload);
        }
    }
}

fn look_until(world: &mut World, until: At) {
    while world.at() < until && world.violations.len() < VIOLATIONS_MOST {
        world.request(Listener::Secure, "/pods");
        world.run_until((world.at() + LOOK).min(until));
    }
}
