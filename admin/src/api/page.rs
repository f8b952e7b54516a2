//! Lists in pages: in an order that does not change while items come and go.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::context::AdminState;
use super::problem::typed_problem;
use crate::status::ProblemType;

/// The most items of a page.
const LIMIT_MAX: u16 = 1000;

/// The page of a list whose items are found by `K`. As an argument of a handler it answers 400 to
/// another query. Without a limit the page has all items.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageQuery<K> {
    limit: Option<u16>,
    /// The key of the last item of the page before.
    cursor: Option<K>,
}

impl<K: DeserializeOwned> FromRequestParts<AdminState> for PageQuery<K> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, Response> {
        let query = Query::<Self>::try_from_uri(&parts.uri).ok();
        let page = query.map(|Query(page)| page);
        page.filter(|page| {
            page.limit
                .is_none_or(|limit| (1..=LIMIT_MAX).contains(&limit))
        })
        .ok_or_else(|| {
            let detail = "the query may have limit=1 to 1000, and cursor=NEXT with `next` of \
                              the page before";
            typed_problem(ProblemType::Query, detail)
        })
    }
}

impl<K> PageQuery<K> {
    /// The items of the page, and the cursor of the next one. `order` is that of the list, by key.
    /// An item that comes or goes between two pages moves no other one.
    pub fn of<T, O: Ord>(
        &self,
        mut list: Vec<T>,
        key: impl Fn(&T) -> K,
        order: impl Fn(&K) -> O,
    ) -> (Vec<T>, Option<K>) {
        list.sort_by_cached_key(|item| order(&key(item)));
        if let Some(cursor) = &self.cursor {
            let after = order(cursor);
            list.retain(|item| order(&key(item)) > after);
        }
        let limit = self.limit.map_or(usize::MAX, usize::from);
        let more = list.len() > limit;
        list.truncate(limit);
        let next = if more { list.last().map(key) } else { None };
        (list, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_every_item_once_though_others_come_and_go() {
        let page = |cursor| PageQuery {
            limit: Some(2),
            cursor,
        };
        let of = |cursor, list: &[u64]| page(cursor).of(list.to_vec(), |&item| item, |&key| key);
        assert_eq!(of(None, &[9, 3, 5, 7]), (vec![3, 5], Some(5)));
        // The last item of the page is gone, and two others have come.
        assert_eq!(of(Some(5), &[9, 3, 7, 4, 8]), (vec![7, 8], Some(8)));
        assert_eq!(of(Some(8), &[9, 3, 7]), (vec![9], None));
        assert_eq!(of(Some(9), &[9]), (vec![], None));
        let all = PageQuery::<u64> {
            limit: None,
            cursor: None,
        };
        assert_eq!(
            all.of(vec![2, 1], |&item| item, |&key| key),
            (vec![1, 2], None)
        );
    }
}
