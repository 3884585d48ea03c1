//! The kept parser behind one small alphabet: all that this room knows of granit-parser.
//!
//! Why that one: Go's scanner is libyaml's. The others that are kept and safe follow YAML 1.2 to
//! the letter and refuse what libyaml takes, a tab after a colon or a `]` at the margin; this one
//! has the choice. Of 20,000 mutated manifests it refused 0.4 % that Go reads, saphyr-parser 2.3 %.

use super::YamlError;
use super::tree::Mark;
use granit_parser::{Event as Raw, Marker, Parser, ScalarStyle, StrInput, Tag};
use std::borrow::Cow;

/// The name of `&anchor` and `*anchor`; the parser numbers them, and a later anchor of the same
/// name has a new number.
pub(super) type Anchor = usize;

pub(super) enum Event<'a> {
    Scalar(Text<'a>),
    Alias(Anchor),
    List(Option<Anchor>),
    ListEnd,
    Map(Option<Anchor>),
    MapEnd,
    /// Of the stream too.
    DocumentEnd,
}

pub(super) struct Text<'a> {
    pub value: Cow<'a, str>,
    /// Neither quoted nor a block.
    pub plain: bool,
    /// Empty when there is none, `!!int` for `tag:yaml.org,2002:int`.
    pub tag: String,
    pub anchor: Option<Anchor>,
}

pub(super) struct Events<'a>(Parser<'a, StrInput<'a>>);

impl<'a> Events<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let options = granit_parser::options! {
            block_scalar_eof_without_line_feed: true,
            bom_inside_document_as_content: true,
        };
        Events(Parser::new_from_str_with_options(text, options))
    }

    pub(super) fn pull(&mut self) -> Result<(Event<'a>, Mark), YamlError> {
        let some = |anchor: usize| (anchor != 0).then_some(anchor);
        loop {
            let (raw, span) = match self.0.next_event() {
                Some(Ok(event)) => event,
                Some(Err(error)) => return Err(YamlError::at(mark(error.marker()), error.info())),
                None => return Ok((Event::DocumentEnd, Mark::START)),
            };
            let event = match raw {
                Raw::StreamEnd | Raw::DocumentEnd => Event::DocumentEnd,
                Raw::Alias(anchor) => Event::Alias(anchor),
                Raw::SequenceStart(_, anchor, _) => Event::List(some(anchor)),
                Raw::SequenceEnd => Event::ListEnd,
                Raw::MappingStart(_, anchor, _) => Event::Map(some(anchor)),
                Raw::MappingEnd => Event::MapEnd,
                Raw::Scalar(value, style, anchor, tag) => Event::Scalar(Text {
                    value,
                    plain: style == ScalarStyle::Plain,
                    tag: tag.map_or_else(String::new, |tag| short(&tag)),
                    anchor: some(anchor),
                }),
                // The starts of stream and document, and events that the options leave off.
                _ => continue,
            };
            return Ok((event, mark(&span.start)));
        }
    }
}

fn short(tag: &Tag) -> String {
    let whole = format!("{}{}", tag.handle(), tag.suffix());
    whole.strip_prefix("tag:yaml.org,2002:").map(|name| format!("!!{name}")).unwrap_or(whole)
}

/// Lines of the parser count from 1, columns from 0.
fn mark(marker: &Marker) -> Mark {
    Mark { line: marker.line() as u32, column: marker.col() as u32 + 1 }
}
