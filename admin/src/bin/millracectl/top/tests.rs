//! The display for given answers and keys.

use std::time::Duration;

use millrace_admin::status::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::draw;
use super::keys::press;
use super::sample::Sample;
use super::state::{TopState, View};

const LATENCY: Latency = Latency {
    p50_seconds: 16e-6,
    p90_seconds: 32e-6,
    p99_seconds: 64e-6,
    p999_seconds: 1e-3,
};

fn client(address: &str, requests: u64, waiting: u64) -> ClientStatus {
    ClientStatus {
        address: address.to_owned(),
        connections: 2,
        credits_granted: 96,
        credits_requested: 128,
        credits_used: 3,
        waiting,
        exposures: 1,
        memory_bytes: 4096,
        requests,
        bytes_read: requests * 4096,
        bytes_written: requests * 1024,
        throttled_seconds: waiting as f64,
        limits: RateLimits {
            iops: (waiting > 0).then_some(500),
            bandwidth_bytes: None,
        },
    }
}

fn connection(id: u64, peer: &str, requests: u64) -> ConnectionStatus {
    ConnectionStatus {
        id,
        peer: peer.to_owned(),
        provider: "iwarp".to_owned(),
        device: None,
        core: Some(0),
        age_seconds: 90.0,
        rpcrdma_version: Some(1),
        inline_send_bytes: Some(4096),
        inline_receive_bytes: Some(4096),
        credits_granted: Some(48),
        credits_requested: Some(64),
        requests_in_flight: 2,
        requests,
        bytes_written: requests * 512,
        bytes_read: requests * 2048,
        exposures: 0,
        latency: Some(LATENCY),
    }
}

/// The server's state `seconds` after the start, at 1,000 requests per second.
fn sample(seconds: u64) -> Sample {
    let requests = seconds * 1000;
    let reactor = |name: &str, core: usize, busy: f64, stalled: bool| ReactorStatus {
        name: name.to_owned(),
        core: Some(core),
        connections: 3,
        tasks: 5,
        requests_in_flight: 7,
        turns: seconds * 250_000,
        busy_seconds: seconds as f64 * busy,
        idle_seconds: seconds as f64 * (1.0 - busy),
        longest_turn_seconds: 0.000_25,
        last_turn_age_seconds: 0.0,
        messages: seconds * 2,
        sleeps: 0,
        stalled,
    };
    let operation = |procedure: &str, bytes: u64, errors: u64| OperationStatus {
        program: "nfs".to_owned(),
        procedure: procedure.to_owned(),
        requests: requests / 2,
        errors,
        bytes,
        latency: Some(LATENCY),
    };
    Sample {
        at: Duration::from_secs(seconds),
        program: "millraced 0.1.0".to_owned(),
        readiness: Readiness::Ready,
        reactors: vec![
            reactor("reactor-0", 2, 0.25, false),
            reactor("reactor-1", 3, 0.999, true),
        ],
        clients: vec![
            client("192.0.2.1", requests, 0),
            client("192.0.2.20", requests / 10, 4),
            client("2001:db8::7", 0, 0),
        ],
        operations: vec![
            operation("read", requests * 4096, 0),
            operation("write", requests * 1024, seconds),
        ],
        connections: Some(vec![
            connection(7, "192.0.2.1:800", requests / 2),
            connection(12, "[2001:db8::7]:801", 0),
            connection(9, "192.0.2.20:802", requests),
        ]),
        exports: Some(vec![ExportStatus {
            path: "/scratch".to_owned(),
            store: "memory".to_owned(),
            access: "rw".to_owned(),
            squash: "none".to_owned(),
            clients: vec!["127.0.0.0/8".to_owned()],
            capacity_bytes: Some(1 << 30),
            used_bytes: Some(990 << 20),
            files: Some(12),
            capacity_files: Some(262_144),
            requests,
            bytes_read: requests * 4096,
            bytes_written: requests * 1024,
            folder: None,
            limits: RateLimits::default(),
            cluster: None,
        }]),
    }
}

/// A state with answers for five seconds, one each second.
fn state(view: View) -> TopState {
    let mut state = TopState::new("storage-1:9620", Duration::from_secs(1), view);
    for second in 1..=5 {
        state.take(Ok(sample(second)));
    }
    state
}

fn drawn(state: &mut TopState, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    terminal
}

/// The characters on the screen, without trailing blanks.
fn screen(state: &mut TopState, width: u16, height: u16) -> String {
    let terminal = drawn(state, width, height);
    let cells = terminal.backend().buffer().content();
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    };
    cells.chunks(usize::from(width)).map(line).collect()
}

fn keys(state: &mut TopState, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            'V' => KeyCode::Down,
            key => KeyCode::Char(key),
        };
        press(state, KeyEvent::new(code, KeyModifiers::NONE));
    }
}

/// Compares with a file beside this one.
macro_rules! is_as_before {
    ($screen:expr, $file:literal) => {
        let screen: String = $screen;
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/bin/millracectl/top/snapshots/",
            $file
        );
        if std::env::var_os("MILLRACE_WRITE_SNAPSHOTS").is_some() {
            std::fs::write(file, &screen).unwrap();
        }
        let before = std::fs::read_to_string(file).unwrap();
        assert!(
            screen == before,
            "{file} has\n{before}\nnow it is\n{screen}"
        );
    };
}

#[test]
fn every_view_fits_a_small_and_a_wide_terminal() {
    is_as_before!(
        screen(&mut state(View::Overview), 80, 24),
        "overview-80x24.txt"
    );
    is_as_before!(
        screen(&mut state(View::Overview), 140, 30),
        "overview-140x30.txt"
    );
    is_as_before!(
        screen(&mut state(View::Clients), 80, 24),
        "clients-80x24.txt"
    );
    is_as_before!(
        screen(&mut state(View::Clients), 140, 12),
        "clients-140x12.txt"
    );
    is_as_before!(
        screen(&mut state(View::Connections), 80, 24),
        "connections-80x24.txt"
    );
    is_as_before!(
        screen(&mut state(View::Connections), 160, 12),
        "connections-160x12.txt"
    );
    is_as_before!(
        screen(&mut state(View::Exports), 80, 12),
        "exports-80x12.txt"
    );
    is_as_before!(
        screen(&mut state(View::Operations), 80, 12),
        "operations-80x12.txt"
    );
}

#[test]
fn help_and_loss_are_shown_over_the_rest() {
    let mut state = state(View::Overview);
    keys(&mut state, "?");
    is_as_before!(screen(&mut state, 80, 24), "help-80x24.txt");
    keys(&mut state, "x");
    state.take(Err(
        "cannot connect to storage-1:9620: Connection refused\x1b[2J".to_owned(),
    ));
    is_as_before!(screen(&mut state, 80, 24), "lost-80x24.txt");
    // It is back, as another run with counters from zero.
    state.take(Ok(sample(0)));
    assert!(screen(&mut state, 80, 24).contains(" requests  -  "));
    let mut one_later = sample(1);
    one_later.at = Duration::from_secs(1);
    state.take(Ok(one_later));
    let text = screen(&mut state, 80, 24);
    assert!(text.contains(" requests  1000/s "), "{text}");
    assert!(!text.contains("LOST"), "{text}");
}

#[test]
fn no_terminal_is_too_small_or_too_large() {
    for view in View::ALL {
        for (width, height) in [(1, 1), (10, 3), (3, 40), (80, 5), (400, 100)] {
            let mut state = state(view);
            drawn(&mut state, width, height);
            keys(&mut state, "?");
            drawn(&mut state, width, height);
            state.take(Err("gone".to_owned()));
            drawn(&mut state, width, height);
        }
        drawn(&mut TopState::new("a:1", Duration::ZERO, view), 80, 24);
    }
}

#[test]
fn rows_are_ordered_filtered_and_marked_by_keys() {
    let mut state = state(View::Connections);
    let order = |state: &mut TopState| -> Vec<u64> {
        let text = screen(state, 80, 24);
        let ids = text
            .lines()
            .skip(3)
            .filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
        ids.collect()
    };
    assert_eq!(order(&mut state), [9, 7, 12]);
    keys(&mut state, "r");
    assert_eq!(order(&mut state), [12, 7, 9]);
    // The first column, then the second.
    keys(&mut state, "s");
    assert_eq!(order(&mut state), [7, 9, 12]);
    keys(&mut state, "s");
    assert_eq!(order(&mut state), [12, 9, 7]);
    keys(&mut state, "S");
    assert_eq!(order(&mut state), [7, 9, 12]);
    keys(&mut state, "/DB8:X\x08");
    assert!(screen(&mut state, 80, 24).contains("show rows with: DB8:_"));
    keys(&mut state, "\n");
    assert_eq!(order(&mut state), [12]);
    assert!(screen(&mut state, 80, 24).contains("with `DB8:`"));
    keys(&mut state, "\x1b");
    assert_eq!(order(&mut state), [7, 9, 12]);
    keys(&mut state, "VVVVV");
    assert_eq!(*state.marked(), 2);
    // The selected row stays visible: title, tabs, headings, one row, foot.
    assert_eq!(order_in(&mut state, 5), [12]);
}

fn order_in(state: &mut TopState, height: u16) -> Vec<u64> {
    let text = screen(state, 80, height);
    let ids = text.lines().skip(3);
    ids.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok())
        .collect()
}

#[test]
fn keys_choose_views_pace_and_the_end() {
    let mut state = state(View::Overview);
    keys(&mut state, "4");
    assert_eq!(state.view, View::Exports);
    keys(&mut state, "\t\t");
    assert_eq!(state.view, View::Overview);
    keys(&mut state, "+");
    assert_eq!(state.interval, Duration::from_millis(500));
    keys(&mut state, "++++++");
    assert_eq!(state.interval, Duration::from_millis(100));
    keys(&mut state, "-");
    assert_eq!(state.interval, Duration::from_millis(200));
    keys(&mut state, " ");
    assert!(state.wish().paused);
    state.take(Ok(sample(6)));
    let text = screen(&mut state, 80, 24);
    assert!(text.contains("PAUSED"), "{text}");
    assert_eq!(state.span().unwrap().now.at, Duration::from_secs(5));
    keys(&mut state, " ");
    state.take(Ok(sample(6)));
    assert_eq!(state.span().unwrap().now.at, Duration::from_secs(6));
    let mut other = self::state(View::Overview);
    keys(&mut state, "q");
    assert!(state.leaves);
    press(
        &mut other,
        KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL),
    );
    assert!(other.leaves);
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    for (colour, expected) in [(false, false), (true, true)] {
        let mut state = state(View::Overview);
        state.colour = colour;
        let terminal = drawn(&mut state, 80, 24);
        let cells = terminal.backend().buffer().content();
        let coloured = cells
            .iter()
            .any(|cell| cell.fg != ratatui::style::Color::Reset);
        assert_eq!(coloured, expected);
    }
}
