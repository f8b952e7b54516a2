//! Key bindings.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::fetch::{INTERVAL_MAX, INTERVAL_MIN};
use super::state::{TopState, View};

/// The most characters of a filter.
const FILTER_MAX: usize = 64;

/// Performs the action of a key.
pub fn press(state: &mut TopState, key: KeyEvent) {
    if key.kind == KeyEventKind::Release {
        return;
    }
    state.touch();
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        if matches!(key.code, KeyCode::Char('c' | 'd')) {
            state.leaves = true;
        }
        return;
    }
    if state.writes {
        return write(state, key.code);
    }
    if state.help {
        // Any key closes it.
        state.help = false;
        return;
    }
    match key.code {
        KeyCode::Char('q') => state.leaves = true,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => state.help = true,
        KeyCode::Char(digit @ '1'..='5') => {
            state.view = View::ALL[digit as usize - '1' as usize];
        }
        KeyCode::Tab | KeyCode::Right => turn(state, 1),
        KeyCode::BackTab | KeyCode::Left => turn(state, View::ALL.len() - 1),
        KeyCode::Char(' ' | 'p') => state.paused = !state.paused,
        KeyCode::Char('/') => state.writes = true,
        KeyCode::Esc => state.filter.clear(),
        KeyCode::Char('s') => sort(state, 1),
        KeyCode::Char('S') => sort(state, state.columns.max(1) - 1),
        KeyCode::Char('r') => {
            let order = state.order();
            order.1 = !order.1;
        }
        KeyCode::Char('+' | '=') => {
            state.interval = (state.interval / 2).max(INTERVAL_MIN);
        }
        KeyCode::Char('-') => state.interval = (state.interval * 2).min(INTERVAL_MAX),
        KeyCode::Down | KeyCode::Char('j') => go(state, 1),
        KeyCode::Up | KeyCode::Char('k') => go(state, -1),
        KeyCode::PageDown => go(state, state.page.cast_signed()),
        KeyCode::PageUp => go(state, -state.page.cast_signed()),
        KeyCode::Home => *state.marked() = 0,
        KeyCode::End => go(state, isize::MAX),
        _ => {}
    }
}

/// Editing of the filter.
fn write(state: &mut TopState, key: KeyCode) {
    match key {
        KeyCode::Enter => state.writes = false,
        KeyCode::Esc => {
            state.writes = false;
            state.filter.clear();
        }
        KeyCode::Backspace => drop(state.filter.pop()),
        KeyCode::Char(letter) if state.filter.chars().count() < FILTER_MAX => {
            state.filter.push(letter);
        }
        _ => {}
    }
    *state.marked() = 0;
}

fn turn(state: &mut TopState, steps: usize) {
    state.view = View::ALL[(state.view.place() + steps) % View::ALL.len()];
}

/// Sorts by another column, in its default direction.
fn sort(state: &mut TopState, steps: usize) {
    let columns = state.columns.max(1);
    let order = state.order();
    *order = match order.0 < columns {
        true => ((order.0 + steps) % columns, false),
        false => (0, false),
    };
}

fn go(state: &mut TopState, rows: isize) {
    let last = state.rows.saturating_sub(1);
    let marked = state.marked();
    *marked = marked.saturating_add_signed(rows).min(last);
}
