//! The kubelet's own HTTP endpoints: which path answers what, to whom.
//!
//! Upstream: pkg/kubelet/server/server.go (v1.36); contract.md section 2.
//! Owns: nothing. Publishes: nothing.
//! Hears: -. Says: -. Asks: -.
//! Never: changes a pod.

use crate::cx::Cx;
use crate::effect::Reply;
use crate::event::Request;
use crate::facts::Facts;
use crate::ids::RequestId;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {}

impl Server {
    pub(crate) fn on_request(&mut self, cx: &mut Cx<'_>, request: &Request) {
        let (status, body) = match request.path.as_str() {
            "/healthz" | "/healthz/ping" => (200, "ok"),
            _ => (404, "404 page not found\n"),
        };
        cx.reply(request.id, text(status, body));
    }

    pub(crate) fn on_gone(&mut self, _request: RequestId) {}

    pub(crate) fn check(&self, _facts: &Facts) {}
}

fn text(status: u16, body: &'static str) -> Reply {
    Reply {
        status,
        content_type: "text/plain; charset=utf-8".into(),
        body: Bytes::from_static(body.as_bytes()),
    }
}
