//! The Grafana dashboard.

use serde_json::{Value, json};

use super::panels::{Panel, PanelForm, ROWS};

/// The width of Grafana's grid.
const WIDTH: u64 = 24;

/// The dashboard in the form that Grafana imports.
pub fn dashboard() -> String {
    let mut panels = Vec::new();
    let mut place = GridPosition::default();
    for (title, row) in ROWS {
        panels.push(json!({
            "type": "row", "title": title, "id": panels.len() + 1, "collapsed": false,
            "panels": [], "gridPos": place.take(WIDTH, 1),
        }));
        for panel in *row {
            let (width, height) = match panel.form {
                PanelForm::Number => (WIDTH / 4, 4),
                PanelForm::Lines | PanelForm::Stack => (WIDTH / 2, 8),
            };
            let place = place.take(width, height);
            panels.push(show(panel, panels.len() + 1, &place));
        }
        place.end();
    }
    let whole = json!({
        "uid": "millrace",
        "title": "Millrace",
        "description": "NFS over RDMA: load, latency and errors of the servers.",
        "tags": ["millrace", "nfs", "rdma"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            {
                "name": "datasource", "label": "Data source", "type": "datasource",
                "query": "prometheus", "refresh": 1, "hide": 0,
            },
            {
                "name": "instance", "label": "Server", "type": "query",
                "datasource": source(),
                "query": { "query": "label_values(millrace_build_info, instance)", "refId": "instance" },
                "definition": "label_values(millrace_build_info, instance)",
                "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".+",
                "current": { "text": "All", "value": "$__all" },
            },
        ] },
        "annotations": { "list": [{
            "name": "Configuration changes", "enable": true, "iconColor": "blue",
            "datasource": source(),
            "expr": "changes(millrace_config_generation{instance=~\"$instance\"}[1m]) > 0",
            "titleFormat": "Configuration changed on {{instance}}",
        }] },
        "panels": panels,
    });
    // Serializing maps and texts does not fail.
    let mut text = serde_json::to_string_pretty(&whole).unwrap_or_default();
    text.push('\n');
    text
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn show(panel: &Panel, id: usize, place: &Value) -> Value {
    let targets: Vec<_> = (b'A'..)
        .zip(panel.queries)
        .map(|(letter, (query, legend))| {
            json!({
                "refId": char::from(letter).to_string(),
                "datasource": source(),
                "expr": query,
                "legendFormat": legend,
                "instant": panel.form == PanelForm::Number,
            })
        })
        .collect();
    let stacked = panel.form == PanelForm::Stack;
    let named = panel.unit == "string";
    let (kind, options, custom) = if panel.form == PanelForm::Number {
        let options = json!({
            "reduceOptions": { "calcs": ["lastNotNull"] },
            "textMode": if named { "name" } else { "auto" },
            "colorMode": "none", "graphMode": "none",
        });
        ("stat", options, json!({}))
    } else {
        let options = json!({
            "legend": { "displayMode": "list", "placement": "bottom" },
            "tooltip": { "mode": "multi", "sort": "desc" },
        });
        let custom = json!({
            "lineWidth": 1, "fillOpacity": if stacked { 30 } else { 0 }, "showPoints": "never",
            "stacking": { "mode": if stacked { "normal" } else { "none" } },
        });
        ("timeseries", options, custom)
    };
    json!({
        "type": kind, "id": id, "title": panel.title, "description": panel.description,
        "datasource": source(), "targets": targets, "gridPos": place, "options": options,
        "fieldConfig": {
            "defaults": { "unit": if named { "none" } else { panel.unit }, "min": 0, "custom": custom },
            "overrides": [],
        },
    })
}

/// The next free position of the grid.
#[derive(Default)]
struct GridPosition {
    x: u64,
    y: u64,
    /// The height of the panels to the left of it.
    height: u64,
}

impl GridPosition {
    fn take(&mut self, width: u64, height: u64) -> Value {
        if self.x + width > WIDTH || (self.x > 0 && self.height != height) {
            self.end();
        }
        let place = json!({ "x": self.x, "y": self.y, "w": width, "h": height });
        self.x += width;
        self.height = height;
        place
    }

    /// The next one begins at the left.
    fn end(&mut self) {
        self.y += self.height;
        (self.x, self.height) = (0, 0);
    }
}
