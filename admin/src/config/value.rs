//! Single values of a configuration, in the form of the file.

use serde_json::Value;

/// Parses the text after a key's colon. Text that is not YAML is a word: `[::1]:20049`.
pub fn value_of_text(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Writes a value in the form of the file: a word or number by itself, others as YAML.
pub fn text_of_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => {
            let text = serde_yaml::to_string(value);
            text.map_or_else(|_| value.to_string(), |text| text.trim_end().to_owned())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_in_the_file() {
        for (text, value) in [
            ("ro", json!("ro")),
            ("off", json!("off")),
            ("64", json!(64)),
            ("2GiB/s", json!("2GiB/s")),
            ("null", Value::Null),
            (
                "info,millrace::nfs3=debug",
                json!("info,millrace::nfs3=debug"),
            ),
            ("127.0.0.1:20049", json!("127.0.0.1:20049")),
            ("[::1]:20049", json!("[::1]:20049")),
            ("[1, 2]", json!([1, 2])),
            (
                "{ kind: memory, size: 1GiB }",
                json!({"kind": "memory", "size": "1GiB"}),
            ),
        ] {
            assert_eq!(value_of_text(text), value, "{text}");
        }
    }

    #[test]
    fn values_are_written_as_in_the_file() {
        assert_eq!(text_of_value(&json!("ro")), "ro");
        assert_eq!(text_of_value(&json!(64)), "64");
        assert_eq!(text_of_value(&json!([1, 2])), "- 1\n- 2");
        let store = json!({"kind": "memory", "size": "1GiB"});
        assert_eq!(text_of_value(&store), "kind: memory\nsize: 1GiB");
    }
}
