//! The certificates by which the node shows who it is: asked for, kept, and renewed in time.
//!
//! Upstream: client-go/util/certificate, pkg/kubelet/certificate (v1.36).
//! Owns: a keeper for each of the two. Publishes: `facts.certificates`. Hears: Booted, NodeKnown, ApiBack.
//! Says: ApiBack, when there are credentials at last. Asks: keys, requests and pairs of the disk door; POST, GET and
//! the watch of its own CertificateSigningRequest, the first one with the bootstrap credentials.
//! Never: sees a private key; has more than one request of a kind open; asks while the clock cannot be right.

mod keeper;
mod plan;

use crate::cx::Cx;
use crate::effect::{Call, Content, Effect, HelperOp, Lane};
use crate::event::{HelperReply, Item, Outcome};
use crate::managers::metrics::{AGES, Histogram};
use crate::note::Note;
use crate::rng::Rng;
use crate::time::{Mono, Span, Wall};
use keeper::{Keeper, Step, Told};
use plan::Kind;
use serde::{Deserialize, Serialize};

/// How often a pair that is in use is looked at: somebody may have replaced it, and the wall clock may jump.
const LOOK: Span = Span::from_secs(60);
/// Without a client certificate for so long, while the API server answers, a new life may find a way: a kubeconfig, or
/// bootstrap credentials, that somebody has put there meanwhile (pkg/kubelet/certificate/transport.go).
const EXIT_AFTER: Span = Span::from_secs(5 * 60);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Certificates {
    client: Option<Keeper>,
    serving: Option<Keeper>,
    /// When the client certificate was last seen to be good. None: this life began without one.
    good_at: Option<Mono>,
    /// The kubeconfig is to be written when there is a pair for it.
    kubeconfig_due: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Client(Step),
    Serving(Step),
    Kubeconfig,
}

impl Ask {
    fn of(kind: Kind, step: Step) -> Ask {
        match kind {
            Kind::Client => Ask::Client(step),
            Kind::Serving => Ask::Serving(step),
        }
    }
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificatesFacts {
    client: Option<KeptFacts>,
    serving: Option<KeptFacts>,
}

/// Of a certificate that is kept here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptFacts {
    not_after: Option<Wall>,
    not_before: Option<Wall>,
    errors: u64,
    ages: Histogram,
}

impl CertificatesFacts {
    /// None when it is not kept by this agent.
    pub fn client(&self) -> Option<&KeptFacts> {
        self.client.as_ref()
    }

    pub fn serving(&self) -> Option<&KeptFacts> {
        self.serving.as_ref()
    }
}

impl KeptFacts {
    pub fn not_after(&self) -> Option<Wall> {
        self.not_after
    }

    /// How often it could not be renewed.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// How old certificates were when they were replaced.
    pub fn ages(&self) -> &Histogram {
        &self.ages
    }
}

impl Certificates {
    pub(crate) fn on_booted(&mut self, cx: &mut Cx<'_>, rng: &Rng) {
        let Some(api) = cx.facts.settings().api.as_ref() else { return };
        let settings = &api.certificates;
        let client = settings.rotate || settings.bootstrap;
        let serving = settings.serving;
        self.kubeconfig_due = settings.kubeconfig_missing;
        if client {
            cx.facts.certificates.client = Some(KeptFacts::default());
            self.client.insert(Keeper::new(Kind::Client, rng.child(1))).hurry(cx);
        }
        if serving {
            cx.facts.certificates.serving = Some(KeptFacts::default());
            self.serving.insert(Keeper::new(Kind::Serving, rng.child(2))).hurry(cx);
        }
    }

    /// The Node is there, and with it its addresses.
    pub(crate) fn on_node_known(&mut self, cx: &mut Cx<'_>) {
        if let Some(serving) = &mut self.serving {
            serving.hurry(cx);
        }
    }

    pub(crate) fn on_api_back(&mut self, cx: &mut Cx<'_>) {
        for keeper in self.client.iter_mut().chain(&mut self.serving) {
            keeper.hurry(cx);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.client.iter().chain(&self.serving).filter_map(Keeper::deadline).min()
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        let client = self.client.as_mut().and_then(|keeper| keeper.on_tick(cx));
        self.heard(cx, Kind::Client, client);
        let serving = self.serving.as_mut().and_then(|keeper| keeper.on_tick(cx));
        self.heard(cx, Kind::Serving, serving);
    }

    pub(crate) fn on_item(&mut self, cx: &mut Cx<'_>, ask: Ask, item: &Item) {
        let (kind, keeper) = match ask {
            Ask::Client(_) => (Kind::Client, &mut self.client),
            Ask::Serving(_) => (Kind::Serving, &mut self.serving),
            Ask::Kubeconfig => return,
        };
        let told = keeper.as_mut().and_then(|keeper| keeper.on_item(cx, item));
        self.heard(cx, kind, told);
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, ask: Ask, outcome: Outcome) {
        let (kind, keeper, step) = match ask {
            Ask::Client(step) => (Kind::Client, &mut self.client, step),
            Ask::Serving(step) => (Kind::Serving, &mut self.serving, step),
            Ask::Kubeconfig => return self.kubeconfig_written(cx, &outcome),
        };
        let told = keeper.as_mut().and_then(|keeper| keeper.on_done(cx, step, outcome));
        self.heard(cx, kind, told);
    }

    fn heard(&mut self, cx: &mut Cx<'_>, kind: Kind, told: Option<Told>) {
        let Some(told) = told else { return };
        self.publish(cx, kind, told);
        if kind == Kind::Serving {
            return;
        }
        match told {
            Told::Stored(lane) => {
                self.kubeconfig_due |= lane == Lane::Bootstrap;
                self.judge(cx);
                // Whoever rests since there were no credentials goes on.
                cx.say(Note::ApiBack);
            }
            Told::Looked => self.judge(cx),
            Told::Failed => {}
        }
    }

    fn publish(&mut self, cx: &mut Cx<'_>, kind: Kind, told: Told) {
        let facts = &mut cx.facts.certificates;
        let (keeper, facts) = match kind {
            Kind::Client => (&self.client, &mut facts.client),
            Kind::Serving => (&self.serving, &mut facts.serving),
        };
        let (Some(keeper), Some(facts)) = (keeper, facts) else { return };
        match told {
            Told::Failed => facts.errors += 1,
            Told::Stored(_) => {
                if let Some(since) = facts.not_before {
                    let age = cx.now.wall.0.saturating_sub(since.0).max(0);
                    facts.ages.observe(AGES, Span(age.unsigned_abs()));
                }
            }
            Told::Looked => {}
        }
        facts.not_before = keeper.pair().map(|pair| pair.not_before);
        facts.not_after = keeper.pair().map(|pair| pair.not_after);
    }

    /// The client certificate was looked at.
    fn judge(&mut self, cx: &mut Cx<'_>) {
        let Some(keeper) = &self.client else { return };
        let Some(api) = cx.facts.settings().api.as_ref() else { return };
        let rotates = api.certificates.rotate;
        let (now, pair) = (cx.now.mono, keeper.pair());
        if pair.is_some_and(|pair| !plan::is_expired(pair, cx.now.wall)) {
            self.good_at = Some(now);
            if core::mem::take(&mut self.kubeconfig_due) {
                self.write_kubeconfig(cx);
            }
            return;
        }
        if pair.is_some() && self.good_at.is_none() {
            // It has expired while nobody was here.
            self.good_at = Some(now);
        }
        let since = self.good_at.map_or(Span::ZERO, |at| now.since(at));
        if rotates && since >= EXIT_AFTER && !keeper.is_hopeful() && cx.api_answers() {
            log::error!(
                "For {} s there was no valid client certificate, and the API server answers: this agent ends, so \
                 that its next start reads the kubeconfigs anew; pods run on",
                since.secs()
            );
            cx.emit(Effect::Exit(1));
        }
    }

    fn write_kubeconfig(&mut self, cx: &mut Cx<'_>) {
        let api = cx.facts.settings().api.as_ref();
        let Some((path, text)) = api.and_then(|api| api.certificates.kubeconfig.clone()) else {
            return;
        };
        let content = Content::Sealed(text);
        cx.call(Ask::Kubeconfig, Call::Helper(HelperOp::WriteFile { path, mode: 0o600, content }));
    }

    fn kubeconfig_written(&mut self, cx: &Cx<'_>, outcome: &Outcome) {
        let api = cx.facts.settings().api.as_ref();
        let path = api.and_then(|api| api.certificates.kubeconfig.as_ref()).map(|(path, _)| path);
        let path = path.map_or("", |path| path);
        match outcome {
            Outcome::Helper(Ok(HelperReply::Done)) => {
                log::info!("Wrote the kubeconfig {path}, which names the new client certificate");
            }
            other => {
                // With the next look.
                self.kubeconfig_due = true;
                log::error!("The kubeconfig {path} cannot be written: {}", words(other));
            }
        }
    }
}

fn words(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Helper(Err(fault)) => &fault.message,
        _ => "a helper answers something else",
    }
}
