//! What is going to happen, in order of time; ties in the order in which they were planned.

use crate::clock::At;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

#[derive(Debug)]
pub struct Agenda<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    planned: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: At,
    place: u64,
    what: T,
}

impl<T> Agenda<T> {
    pub fn plan(&mut self, at: At, what: T) {
        self.planned += 1;
        self.heap.push(Reverse(Entry { at, place: self.planned, what }));
    }

    pub fn next_at(&self) -> Option<At> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub fn pop(&mut self) -> Option<(At, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

impl<T> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), planned: 0 }
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.place).cmp(&(other.at, other.place))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_first_and_ties_in_order_of_planning() {
        let mut agenda = Agenda::default();
        for (at, what) in [(5, "d"), (1, "a"), (3, "b"), (3, "c")] {
            agenda.plan(At(at), what);
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }
}
