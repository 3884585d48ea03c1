//! The way to the server, and what may go wrong on it.

use crate::dice::Dice;
use steplet_core::time::Span;

/// Shares are in percent of requests.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Nobody listens.
    pub down: bool,
    /// Nothing comes through, in neither direction, and nobody says so.
    pub hole: bool,
    /// Requests that are done and whose answer is lost.
    pub lost: u64,
    /// Requests and answers come later, by up to this.
    pub slow_by: Span,
    pub trouble: Option<Trouble>,
    /// What lists tell that may be answered from a cache (`resourceVersion=0`).
    pub lists: Lists,
}

/// Requests are refused for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Of HTTP.
    pub code: u16,
    pub retry_after: Option<Span>,
    pub share: u64,
    /// `pods/status`; empty: whatever is asked.
    pub subject: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lists {
    #[default]
    Fresh,
    /// As they were so many changes ago.
    Old(usize),
    /// A cache that knows nothing yet.
    Empty,
    /// Every list of pods is empty, whatever is asked, but for one of a single name.
    Blank,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Through,
    /// It is done, and nobody hears of it.
    AnswerLost,
    Refused,
    /// Nothing comes until its deadline.
    Vanishes,
    /// It is not done, and answered so.
    Trouble(Trouble),
}

impl Link {
    /// Whether requests are answered as soon and as well as they can be.
    pub fn is_fine(&self) -> bool {
        let Link { down, hole, lost, slow_by, trouble, lists } = self;
        *lists != Lists::Blank
            && !down
            && !hole
            && *lost == 0
            && *slow_by == Span::ZERO
            && trouble.is_none()
    }

    pub fn fate(&self, subject: &str, dice: &mut Dice) -> (Fate, Option<&'static str>) {
        if self.down {
            return (Fate::Refused, Some("API server down"));
        }
        if self.hole {
            // The last packet may have got through.
            let fate = if dice.chance(20) { Fate::AnswerLost } else { Fate::Vanishes };
            return (fate, Some("API server unreachable"));
        }
        if let Some(trouble) = &self.trouble
            && (trouble.subject.is_empty() || trouble.subject == subject)
            && dice.chance(trouble.share)
        {
            return (Fate::Trouble(trouble.clone()), Some(struck_by(trouble.code)));
        }
        // Nothing is drawn where nothing is lost, so that scenes stay as they are.
        if self.lost > 0 && dice.chance(self.lost) {
            return (Fate::AnswerLost, Some("API answer lost"));
        }
        let slow = (self.slow_by > Span::ZERO).then_some("API server slow");
        (Fate::Through, slow)
    }
}

/// The name of the fault that answers so.
fn struck_by(code: u16) -> &'static str {
    match code {
        401 => "API server knows nobody",
        403 => "API server forbids",
        429 => "API server throttles",
        _ => "API server fails",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_whom_it_means() {
        let mut dice = Dice::new(1);
        let mut fate = |link: &Link, subject: &str| link.fate(subject, &mut dice).0;
        assert_eq!(fate(&Link::default(), "pods"), Fate::Through);
        let trouble =
            Trouble { code: 503, retry_after: None, share: 100, subject: "pods/status".into() };
        let link = Link { trouble: Some(trouble.clone()), ..Link::default() };
        assert_eq!(fate(&link, "pods"), Fate::Through);
        assert_eq!(fate(&link, "pods/status"), Fate::Trouble(trouble));
        assert_eq!(fate(&Link { down: true, ..link.clone() }, "pods/status"), Fate::Refused);
        assert_eq!(fate(&Link { lost: 100, ..Link::default() }, "pods"), Fate::AnswerLost);
        let hole = Link { hole: true, ..Link::default() };
        let fates: Vec<Fate> = (0..100).map(|_| fate(&hole, "pods")).collect();
        assert!(fates.contains(&Fate::Vanishes) && fates.contains(&Fate::AnswerLost));
    }
}
