//! What the API server has told the agent of its pods: the lists and watches that the core was given.

use crate::doors::api::request::{Field, Request};
use serde_json::Value;
use steplet_core::effect::{ApiCall, Verb};
use steplet_core::event::{ApiReply, Item, Outcome};

/// News of pods.
#[derive(Debug, PartialEq)]
pub enum News {
    /// A whole list.
    All(Vec<Value>),
    /// A list of one name that has none.
    Absent {
        namespace: String,
        name: String,
    },
    Set(Value),
    Gone(Value),
}

#[derive(Debug, Default)]
pub struct Told {
    /// Pages of a list that is under way.
    pages: Vec<Value>,
}

/// Whether a call asks for the pods of this node.
fn asks_pods(call: &ApiCall) -> bool {
    call.path.split('?').next() == Some("/api/v1/pods")
}

/// Namespace and name of the one pod that a list is of.
fn asks_one(call: &ApiCall) -> Option<(String, String)> {
    let request = Request::read(call).ok()?;
    let name = request.query.field(Field::Name)?;
    (request.resource.plural == "pods" && request.name.is_empty())
        .then(|| (request.namespace.clone(), name.to_owned()))
}

impl Told {
    /// The answer to a call, which may be the last page of a list.
    pub fn answer(&mut self, call: &ApiCall, outcome: &Outcome) -> Option<News> {
        let Outcome::Api(Ok(ApiReply { status: 200, body, .. })) = outcome else { return None };
        if call.verb != Verb::Get {
            return None;
        }
        if let Some((namespace, name)) = asks_one(call) {
            let list: Value = serde_json::from_slice(body).ok()?;
            return Some(match list.get("items")?.as_array()?.first() {
                Some(object) => News::Set(object.clone()),
                None => News::Absent { namespace, name },
            });
        }
        if !asks_pods(call) {
            return None;
        }
        let list: Value = serde_json::from_slice(body).ok()?;
        if !call.path.contains("continue=") {
            self.pages.clear();
        }
        self.pages.extend(list.get("items")?.as_array()?.iter().cloned());
        let more = list.pointer("/metadata/continue").and_then(Value::as_str);
        match more.is_some_and(|more| !more.is_empty()) {
            true => None,
            false => Some(News::All(std::mem::take(&mut self.pages))),
        }
    }

    /// A line of a watch.
    pub fn line(call: &ApiCall, item: &Item) -> Option<News> {
        let Item::Line(line) = item else { return None };
        if !asks_pods(call) {
            return None;
        }
        let mut line: Value = serde_json::from_slice(line).ok()?;
        let object = line.get_mut("object")?.take();
        match line.get("type")?.as_str()? {
            "ADDED" | "MODIFIED" => Some(News::Set(object)),
            "DELETED" => Some(News::Gone(object)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use steplet_core::effect::Lane;
    use steplet_core::time::Span;

    #[test]
    fn lists_come_in_pages_and_lines_one_by_one() {
        let call = |verb, query: &str| ApiCall {
            verb,
            path: format!("/api/v1/pods?{query}"),
            body: Default::default(),
            within: Span::ZERO,
            lane: Lane::Main,
            seals: false,
            secret: None,
        };
        let page = |items: Value, next: &str| {
            let body = json!({"metadata": {"continue": next}, "items": items}).to_string().into();
            Outcome::Api(Ok(ApiReply { status: 200, retry_after: None, body }))
        };
        let mut told = Told::default();
        assert_eq!(told.answer(&call(Verb::Get, "limit=1"), &page(json!([1]), "x")), None);
        let all = told.answer(&call(Verb::Get, "limit=1&continue=x"), &page(json!([2]), ""));
        assert_eq!(all, Some(News::All(vec![json!(1), json!(2)])));
        let path = "/api/v1/namespaces/ns/pods?fieldSelector=metadata.name%3Dp".to_owned();
        let one = ApiCall { path, ..call(Verb::Get, "") };
        assert_eq!(told.answer(&one, &page(json!([3]), "")), Some(News::Set(json!(3))));
        let absent = News::Absent { namespace: "ns".into(), name: "p".into() };
        assert_eq!(told.answer(&one, &page(json!([]), "")), Some(absent));
        assert_eq!(told.answer(&call(Verb::Get, ""), &Outcome::Api(Err("no".into()))), None);
        let watch = call(Verb::Watch, "watch=true");
        let line = |text: Value| Told::line(&watch, &Item::Line(text.to_string().into()));
        assert_eq!(line(json!({"type": "ADDED", "object": 1})), Some(News::Set(json!(1))));
        assert_eq!(line(json!({"type": "DELETED", "object": 1})), Some(News::Gone(json!(1))));
        assert_eq!(line(json!({"type": "BOOKMARK", "object": 1})), None);
    }
}
