//! The screen, drawn from the state.

use millrace_admin::config::format_duration;
use millrace_admin::status::Readiness;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};

use super::HELP;
use super::grid::{Grid, gap};
use super::grids::{self, per_second};
use super::sample;
use super::state::{TopState, View};
use crate::table::{bytes, plain};

/// Lines of the history of throughput.
const HISTORY_LINES: u16 = 4;

/// Styles, of which only colours depend on the colour setting.
struct Paint {
    colour: bool,
}

impl Paint {
    fn with(&self, style: Style, colour: Color) -> Style {
        match self.colour {
            true => style.fg(colour),
            false => style,
        }
    }

    fn bar(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn warning(&self) -> Style {
        self.with(Style::new().add_modifier(Modifier::BOLD), Color::Red)
    }

    fn good(&self) -> Style {
        self.with(Style::new(), Color::Green)
    }

    fn heading(&self) -> Style {
        self.with(Style::new().add_modifier(Modifier::BOLD), Color::Cyan)
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &mut TopState) {
    let paint = Paint {
        colour: state.colour,
    };
    let [title, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title_line(state, title.width, &paint), title);
    frame.render_widget(tab_line(state, &paint), tabs);
    let body = match state.span() {
        None => {
            let text = match &state.lost {
                Some(reason) => Line::styled(plain(reason), paint.warning()),
                None => Line::raw("waiting for the first answer"),
            };
            frame.render_widget(
                Paragraph::new(text).wrap(ratatui::widgets::Wrap::default()),
                body,
            );
            Rect::default()
        }
        Some(_) if state.view == View::Overview => overview(frame, state, body, &paint),
        Some(_) => lost_line(frame, state, body, &paint),
    };
    let ordered = match body.is_empty() {
        true => None,
        false => rows(frame, state, body, &paint),
    };
    frame.render_widget(foot_line(state, ordered, &paint), foot);
    if state.help {
        help(frame, &paint);
    }
}

/// Program, address and state, the most important part on the right.
fn title_line(state: &TopState, width: u16, paint: &Paint) -> Line<'static> {
    let program = state.span().map(|span| span.now.program.clone());
    let left = format!(
        " {} at {}",
        program.unwrap_or_else(|| "millraced".to_owned()),
        state.authority
    );
    let every = format!("every {}", format_duration(state.interval));
    let condition = match (&state.lost, state.span().map(|span| span.now.readiness)) {
        (Some(_), _) => "LOST, TRYING AGAIN",
        (None, None) => "asking",
        (None, Some(Readiness::Ready)) => "ready",
        (None, Some(Readiness::Starting)) => "STARTING",
        (None, Some(Readiness::Draining)) => "DRAINING",
        (None, Some(Readiness::NoListener)) => "NO LISTENER",
    };
    let right = match state.paused {
        true => format!("{condition}, PAUSED "),
        false => format!("{condition}, {every} "),
    };
    let room = usize::from(width).saturating_sub(right.chars().count());
    let left: String = left.chars().take(room).collect();
    Line::styled(format!("{left:<room$}{right}"), paint.bar())
}

fn tab_line(state: &TopState, paint: &Paint) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for (at, view) in View::ALL.into_iter().enumerate() {
        let text = format!("{} {}", at + 1, view.name());
        spans.push(match view == state.view {
            true => Span::styled(format!("[{text}]"), paint.heading()),
            false => Span::raw(format!(" {text} ")),
        });
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

/// The reason for missing answers, above the latest ones. Returns the rest of the area.
fn lost_line(frame: &mut Frame<'_>, state: &TopState, area: Rect, paint: &Paint) -> Rect {
    let Some(reason) = &state.lost else {
        return area;
    };
    let [line, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(
        Line::styled(format!(" {}", plain(reason)), paint.warning()),
        line,
    );
    rest
}

/// Sums and history, above the reactors. Returns the rest of the area.
fn overview(frame: &mut Frame<'_>, state: &TopState, area: Rect, paint: &Paint) -> Rect {
    let area = lost_line(frame, state, area, paint);
    let Some(span) = state.span() else {
        return area;
    };
    let history = if area.height >= 14 {
        HISTORY_LINES + 1
    } else {
        0
    };
    let [sums, graphs, rest] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(history),
        Constraint::Min(0),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(sum_lines(&span)), sums);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(graphs);
    let read: Vec<u64> = latest(state, left.width, |(read, _)| *read);
    let written: Vec<u64> = latest(state, right.width, |(_, written)| *written);
    for (name, points, area) in [("read", read, left), ("written", written, right)] {
        let most = points.iter().copied().max().unwrap_or(0);
        let title = format!(" {name}, up to {}/s", bytes(most));
        let graph = Sparkline::default()
            .block(Block::new().title(title))
            .style(paint.good())
            .max(most.max(1))
            .data(points);
        frame.render_widget(graph, area);
    }
    rest
}

fn latest(state: &TopState, width: u16, of: fn(&(u64, u64)) -> u64) -> Vec<u64> {
    let points = state.history.len();
    let skip = points.saturating_sub(usize::from(width));
    state.history.iter().skip(skip).map(of).collect()
}

fn sum_lines(span: &sample::Span<'_>) -> Vec<Line<'static>> {
    let [requests, read, written] = span.totals();
    let maybe = |rate: Option<f64>, show: &dyn Fn(f64) -> String| match rate {
        Some(rate) => format!("{}/s", show(rate)),
        None => "-".to_owned(),
    };
    let size = |rate: f64| bytes(rate as u64);
    let clients = &span.now.clients;
    let sum = |of: fn(&millrace_admin::status::ClientStatus) -> u64| -> u64 {
        clients.iter().map(of).sum()
    };
    let field = |name: &str, value: String| format!(" {name:<10}{value:<14}");
    let line = |fields: [(&str, String); 3]| {
        let text: String = fields
            .into_iter()
            .map(|(name, value)| field(name, value))
            .collect();
        Line::raw(text)
    };
    vec![
        line([
            ("requests", maybe(requests, &per_second)),
            ("read", maybe(read, &size)),
            ("written", maybe(written, &size)),
        ]),
        line([
            ("clients", clients.len().to_string()),
            ("conns", sum(|one| one.connections).to_string()),
            ("in flight", sum(|one| one.credits_used).to_string()),
        ]),
        line([
            ("waiting", sum(|one| one.waiting).to_string()),
            ("credits", sum(|one| one.credits_granted).to_string()),
            ("exposures", sum(|one| one.exposures).to_string()),
        ]),
        Line::default(),
    ]
}

/// The rows of the view. Returns the title of the sort column.
fn rows(
    frame: &mut Frame<'_>,
    state: &mut TopState,
    area: Rect,
    paint: &Paint,
) -> Option<&'static str> {
    let Some(mut grid) = state.span().and_then(|span| grids::grid(state.view, &span)) else {
        frame.render_widget(Line::raw(" asking"), area);
        return None;
    };
    let all = grid.rows.len();
    grid.filter(&state.filter);
    let (column, round) = *state.order();
    let column = grid.sort(column, round);
    state.columns = grid.columns.len();
    state.rows = grid.rows.len();
    state.page = usize::from(area.height.saturating_sub(1)).max(1);
    let last = state.rows.saturating_sub(1);
    let marked = (*state.marked()).min(last);
    *state.marked() = marked;
    let fitting = grid.fit(usize::from(area.width).saturating_sub(2));
    let titles = grid.line(&fitting, |at| grid.columns[at].title);
    let mut lines = vec![titles_line(&titles, column, paint)];
    if grid.rows.is_empty() {
        lines.push(Line::raw(match all {
            0 => format!(" {}", grid.empty),
            _ => format!(" none of {all} has `{}`", plain(&state.filter)),
        }));
    }
    // The selected row stays visible.
    let first = (marked + 1).saturating_sub(state.page);
    for at in first..(first + state.page).min(grid.rows.len()) {
        lines.push(row_line(&grid, &fitting, at, at == marked, paint));
    }
    frame.render_widget(Paragraph::new(lines), area);
    Some(grid.columns[column].title)
}

fn titles_line(titles: &[(usize, String)], ordered: usize, paint: &Paint) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for (at, (column, title)) in titles.iter().enumerate() {
        if at > 0 {
            spans.push(Span::raw(gap()));
        }
        let style = match *column == ordered {
            true => paint.heading().add_modifier(Modifier::UNDERLINED),
            false => paint.heading(),
        };
        spans.push(Span::styled(title.clone(), style));
    }
    Line::from(spans)
}

fn row_line(
    grid: &Grid,
    fitting: &[(usize, usize)],
    at: usize,
    marked: bool,
    paint: &Paint,
) -> Line<'static> {
    let row = &grid.rows[at];
    let cells = grid.line(fitting, |column| row.cells[column].text.as_str());
    let texts: Vec<String> = cells.into_iter().map(|(_, text)| text).collect();
    let style = match row.warns {
        true => paint.warning(),
        false => Style::new(),
    };
    let style = match marked {
        true => style.add_modifier(Modifier::REVERSED),
        false => style,
    };
    Line::styled(format!(" {} ", texts.join(&gap())), style)
}

fn foot_line(state: &TopState, ordered: Option<&'static str>, paint: &Paint) -> Line<'static> {
    if state.writes {
        let text = format!(
            " show rows with: {}_   Enter keeps, Esc forgets",
            state.filter
        );
        return Line::styled(text, paint.heading());
    }
    let order = match ordered {
        Some(title) => format!(" by {title}"),
        None => String::new(),
    };
    let filter = match state.filter.is_empty() {
        true => String::new(),
        false => format!(", with `{}`", state.filter),
    };
    Line::raw(format!(
        "{order}{filter} | s sort  r reverse  / filter  space pause  ? help  q leave"
    ))
}

fn help(frame: &mut Frame<'_>, paint: &Paint) {
    let lines: Vec<&str> = HELP.lines().collect();
    let width = lines
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
        + 2;
    let all = frame.area();
    let (width, height) = (
        u16::try_from(width).unwrap_or(u16::MAX).min(all.width),
        u16::try_from(lines.len() + 2)
            .unwrap_or(u16::MAX)
            .min(all.height),
    );
    let area = Rect {
        x: (all.width - width) / 2,
        y: (all.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(Span::styled(" any key closes this ", paint.heading()));
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}
