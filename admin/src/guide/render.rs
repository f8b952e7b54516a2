//! Markdown to HTML. Markup in the text is shown as text, but for anchors.

use std::collections::HashMap;

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// A text as HTML.
#[derive(Debug)]
pub struct Rendered {
    /// Its first heading.
    pub title: String,
    /// The others.
    pub headings: Vec<Heading>,
    /// The body of the page.
    pub html: String,
}

/// A heading below the title.
#[derive(Debug)]
pub struct Heading {
    pub text: String,
    pub anchor: String,
    /// Whether it is below another one.
    pub is_minor: bool,
}

/// Renders a text; `page_of` knows the page of a file that links name, `picture_of` the picture.
pub fn render(
    text: &str,
    page_of: impl Fn(&str) -> Option<&'static str>,
    picture_of: impl Fn(&str) -> Option<&'static str>,
) -> Rendered {
    let mut events: Vec<Event<'_>> = Vec::new();
    let (mut title, mut headings) = (String::new(), Vec::new());
    let mut anchors = Anchors::default();
    // The words of the current heading, and its beginning among the events.
    let mut heading = None;
    // Whether each open link goes somewhere.
    let mut links = Vec::new();
    // Whether each open picture is shown.
    let mut pictures = Vec::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        if let (Some((words, _)), Event::Text(text) | Event::Code(text)) = (&mut heading, &event) {
            String::push_str(words, text);
        }
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                heading = Some((String::new(), events.len()));
                events.push(Event::Start(started(level, None)));
            }
            Event::End(TagEnd::Heading(level)) => {
                let (words, start) = heading.take().unwrap_or_default();
                let anchor = anchors.of(&words);
                events[start] = Event::Start(started(level, Some(anchor.clone().into())));
                events.push(Event::End(TagEnd::Heading(level)));
                match level {
                    HeadingLevel::H1 if title.is_empty() => title = words,
                    _ => headings.push(Heading {
                        text: words,
                        anchor,
                        is_minor: level > HeadingLevel::H2,
                    }),
                }
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                let target = target(&dest_url, &page_of);
                links.push(target.is_some());
                if let Some(target) = target {
                    let opened = format!("<a href=\"{}\">", escaped(&target));
                    events.push(Event::InlineHtml(opened.into()));
                }
            }
            Event::End(TagEnd::Link) => {
                if links.pop() == Some(true) {
                    events.push(Event::InlineHtml("</a>".into()));
                }
            }
            // The page may load nothing from elsewhere: of other pictures their description is left.
            Event::Start(Tag::Image {
                link_type,
                dest_url,
                title,
                id,
            }) => {
                let picture = picture_of(&dest_url);
                pictures.push(picture.is_some());
                if let Some(picture) = picture {
                    let dest_url = picture.into();
                    events.push(Event::Start(Tag::Image {
                        link_type,
                        dest_url,
                        title,
                        id,
                    }));
                }
            }
            Event::End(TagEnd::Image) => {
                if pictures.pop() == Some(true) {
                    events.push(Event::End(TagEnd::Image));
                }
            }
            // Wide tables scroll for themselves, by keyboard too.
            Event::Start(Tag::Table(columns)) => {
                let opened = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
                              aria-label=\"Table\">";
                events.push(Event::Html(opened.into()));
                events.push(Event::Start(Tag::Table(columns)));
            }
            Event::End(TagEnd::Table) => {
                events.push(Event::End(TagEnd::Table));
                events.push(Event::Html("</div>\n".into()));
            }
            Event::Html(markup) | Event::InlineHtml(markup) => match anchor(&markup) {
                Some(name) => {
                    let anchor = format!("<a id=\"{name}\"></a>");
                    events.push(Event::InlineHtml(anchor.into()));
                }
                None if *markup == *"</a>" => {}
                None => events.push(Event::Text(markup)),
            },
            other => events.push(other),
        }
    }
    let mut body = String::with_capacity(text.len() * 2);
    html::push_html(&mut body, events.into_iter());
    Rendered {
        title,
        headings,
        html: body,
    }
}

/// The text for the content of an element or attribute.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}

fn started(level: HeadingLevel, id: Option<CowStr<'_>>) -> Tag<'_> {
    Tag::Heading {
        level,
        id,
        classes: Vec::new(),
        attrs: Vec::new(),
    }
}

/// The name in `<a id="NAME">`.
fn anchor(markup: &str) -> Option<&str> {
    let name = markup.strip_prefix("<a id=\"")?.strip_suffix("\">")?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (!name.is_empty() && name.bytes().all(plain)).then_some(name)
}

/// Where a link goes: within the page, to another page, or to the web; `None` for all else.
fn target(url: &str, page_of: impl Fn(&str) -> Option<&'static str>) -> Option<String> {
    if url.starts_with('#') || url.starts_with("https://") || url.starts_with("http://") {
        return Some(url.to_owned());
    }
    let (file, anchor) = url
        .split_once('#')
        .map_or((url, None), |(file, anchor)| (file, Some(anchor)));
    let page = page_of(file)?;
    Some(anchor.map_or_else(|| page.to_owned(), |anchor| format!("{page}#{anchor}")))
}

/// Anchors of headings, as GitHub makes them.
#[derive(Default)]
struct Anchors {
    taken: HashMap<String, u32>,
}

impl Anchors {
    fn of(&mut self, heading: &str) -> String {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        let plain = heading.to_lowercase();
        let plain: String = plain.trim().chars().filter(kept).collect();
        let plain = plain.replace(' ', "-");
        let count = self.taken.entry(plain.clone()).or_default();
        *count += 1;
        match *count {
            1 => plain,
            count => format!("{plain}-{}", count - 1),
        }
    }
}
