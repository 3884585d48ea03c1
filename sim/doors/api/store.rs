//! The objects of the cluster, their versions, and what has changed lately.

use super::refusal::Refusal;
use super::request::{Query, Resource};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Where an object is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub plural: &'static str,
    pub namespace: String,
    pub name: String,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub key: Key,
    pub before: Option<Rc<Value>>,
    /// The object as it is now; of one that is gone, as it was last.
    pub object: Rc<Value>,
    pub gone: bool,
}

impl Change {
    /// What a watch with this query says of the change.
    pub fn seen_by(&self, query: &Query) -> Option<&'static str> {
        let before = self.before.as_ref().is_some_and(|before| query.selects(before));
        match (before, !self.gone && query.selects(&self.object)) {
            (false, false) => None,
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
        }
    }
}

/// A part of a list.
#[derive(Debug)]
pub struct Page {
    pub version: u64,
    pub items: Vec<Rc<Value>>,
    /// The token of the next one, and how much is left.
    pub next: Option<(String, usize)>,
}

#[derive(Debug)]
pub struct Store {
    objects: BTreeMap<Key, Rc<Value>>,
    history: VecDeque<Change>,
    version: u64,
    /// The newest version that the history has lost.
    forgotten: u64,
    /// What is left of lists that were begun, by token.
    pages: BTreeMap<String, (u64, VecDeque<Rc<Value>>)>,
    lists: u64,
}

/// Changes that a watch can begin behind.
const HISTORY_MOST: usize = 1_000;
/// Lists that can be gone on with.
const PAGES_MOST: usize = 8;
/// The server keeps events for an hour; here it is a number.
const EVENTS_MOST: usize = 300;

impl Default for Store {
    fn default() -> Store {
        Store {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            version: 100,
            forgotten: 100,
            pages: BTreeMap::new(),
            lists: 0,
        }
    }
}

impl Store {
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn object(&self, key: &Key) -> Option<&Rc<Value>> {
        self.objects.get(key)
    }

    pub fn all(&self, plural: &str) -> impl Iterator<Item = &Rc<Value>> {
        self.objects.iter().filter(move |(key, _)| key.plural == plural).map(|(_, object)| object)
    }

    /// Writes an object, which gets the next version.
    pub fn put(&mut self, key: Key, mut object: Value) -> &Change {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Rc::new(object);
        let before = self.objects.insert(key.clone(), Rc::clone(&object));
        if key.plural == "events" && before.is_none() {
            self.drop_old_events();
        }
        self.remember(Change { version: self.version, key, before, object, gone: false })
    }

    /// Removes an object, which was last as `object` says.
    pub fn remove(&mut self, key: &Key, mut object: Value) -> Option<&Change> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let (object, before) = (Rc::new(object), Some(before));
        let key = key.clone();
        Some(self.remember(Change { version: self.version, key, before, object, gone: true }))
    }

    fn remember(&mut self, change: Change) -> &Change {
        self.history.push_back(change);
        if self.history.len() > HISTORY_MOST
            && let Some(lost) = self.history.pop_front()
        {
            self.forgotten = lost.version;
        }
        self.history.back().expect("it was pushed just now")
    }

    fn drop_old_events(&mut self) {
        let age = |object: &Value| {
            let version = object["metadata"]["resourceVersion"].as_str();
            version.and_then(|version| version.parse::<u64>().ok()).unwrap_or(0)
        };
        let events = self.objects.iter().filter(|(key, _)| key.plural == "events");
        let mut events: Vec<_> = events.map(|(key, object)| (age(object), key)).collect();
        if events.len() > EVENTS_MOST {
            events.sort_unstable();
            let oldest = events[0].1.clone();
            self.objects.remove(&oldest);
        }
    }

    /// Compaction: nothing can be watched from before now, no list can be gone on with.
    pub fn expire(&mut self) {
        self.history.clear();
        self.pages.clear();
        // Something else in the cluster goes on: what was the newest version is too old now.
        self.version += 1;
        self.forgotten = self.version;
    }

    /// Changes after a version, oldest first. Errors: some of them are forgotten.
    pub fn since(&self, version: u64) -> Result<impl Iterator<Item = &Change>, Refusal> {
        if version < self.forgotten {
            let (asked, oldest) = (version, self.forgotten);
            return Err(Refusal::expired(format!("too old resource version: {asked} ({oldest})")));
        }
        Ok(self.history.iter().filter(move |change| change.version > version))
    }

    /// The first page of a list, or the next one of a list that was begun.
    pub fn list(&mut self, resource: &Resource, query: &Query) -> Result<Page, Refusal> {
        if !query.page.is_empty() {
            let rest = self.pages.remove(&query.page);
            let (version, rest) = rest.ok_or_else(|| {
                Refusal::expired("The provided continue parameter is too old to display a consistent list result.")
            })?;
            return Ok(self.page(version, rest, query.limit));
        }
        if let Some(asked) = query.version.filter(|asked| *asked > self.version) {
            return Err(Refusal::too_new(asked, self.version));
        }
        let found = self.all(resource.plural).filter(|object| query.selects(object));
        let found = found.cloned().collect();
        Ok(self.page(self.version, found, query.limit))
    }

    /// A list as it was some changes ago: the answer of a cache that lags behind.
    pub fn old_list(&self, resource: &Resource, query: &Query, changes: usize) -> Page {
        let mut objects = self.objects.clone();
        let mut version = self.version;
        for change in self.history.iter().rev().take(changes) {
            version = change.version - 1;
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Rc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        let found = objects.into_iter().filter(|(key, _)| key.plural == resource.plural);
        let found = found.map(|(_, object)| object).filter(|object| query.selects(object));
        Page { version, items: found.collect(), next: None }
    }

    fn page(&mut self, version: u64, mut rest: VecDeque<Rc<Value>>, limit: usize) -> Page {
        if limit == 0 || rest.len() <= limit {
            return Page { version, items: rest.into(), next: None };
        }
        let items = rest.drain(..limit).collect();
        self.lists += 1;
        let token = format!("page-{:06}", self.lists);
        let next = Some((token.clone(), rest.len()));
        self.pages.insert(token, (version, rest));
        if self.pages.len() > PAGES_MOST {
            self.pages.pop_first();
        }
        Page { version, items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::api::request::Field;

    fn key(name: &str) -> Key {
        Key { plural: "pods", namespace: "default".into(), name: name.into() }
    }

    fn pod(name: &str, node: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"nodeName": node}})
    }

    fn pods() -> &'static Resource {
        Resource::of_plural("pods").expect("it is known")
    }

    fn names(page: &Page) -> Vec<&str> {
        page.items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
    }

    #[test]
    fn a_watch_sees_what_comes_and_goes_from_its_view() {
        let mut store = Store::default();
        let query = Query { fields: vec![(Field::NodeName, "n1".into())], ..Query::default() };
        let said = |change: &Change| change.seen_by(&query);
        assert_eq!(said(store.put(key("a"), pod("a", ""))), None);
        assert_eq!(said(store.put(key("a"), pod("a", "n1"))), Some("ADDED"));
        assert_eq!(said(store.put(key("a"), pod("a", "n1"))), Some("MODIFIED"));
        assert_eq!(said(store.remove(&key("a"), pod("a", "n1")).unwrap()), Some("DELETED"));
        assert!(store.remove(&key("a"), pod("a", "n1")).is_none());
        let all: Vec<u64> = store.since(101).unwrap().map(|change| change.version).collect();
        assert_eq!((all, store.version()), (vec![102, 103, 104], 104));
    }

    #[test]
    fn pages_are_of_one_instant_and_expire() {
        let mut store = Store::default();
        for name in ["a", "b", "c"] {
            store.put(key(name), pod(name, "n1"));
        }
        let mut query = Query { limit: 2, ..Query::default() };
        let first = store.list(pods(), &query).unwrap();
        assert_eq!(names(&first), ["a", "b"]);
        store.put(key("bb"), pod("bb", "n1"));
        let (token, left) = first.next.expect("there is more");
        query.page = token;
        let second = store.list(pods(), &query).unwrap();
        assert_eq!((names(&second), second.version, left), (vec!["c"], first.version, 1));
        assert_eq!(store.list(pods(), &query).map_err(|r| r.code).err(), Some(410));
    }

    #[test]
    fn what_is_forgotten_is_expired_and_old_lists_are_of_the_past() {
        let mut store = Store::default();
        for name in ["a", "b"] {
            store.put(key(name), pod(name, "n1"));
        }
        store.remove(&key("a"), pod("a", "n1"));
        let query = Query::default();
        assert_eq!(names(&store.old_list(pods(), &query, 1)), ["a", "b"]);
        let older = store.old_list(pods(), &query, 2);
        assert_eq!((names(&older), older.version), (vec!["a"], 101));
        assert!(store.since(100).is_ok());
        store.expire();
        assert_eq!(store.since(102).err().map(|refusal| refusal.code), Some(410));
        assert!(store.since(store.version()).is_ok());
        let ahead = Query { version: Some(1_000), ..Query::default() };
        assert_eq!(store.list(pods(), &ahead).map_err(|r| r.code).err(), Some(504));
    }
}
