"""Uses the dashboard of a running server as a person would, in headless Chromium.

Usage: check.py URL TOKEN_FILE SCREENSHOTS. Ends with a traceback at the first thing that is wrong.
"""

import json
import sys
import urllib.request

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

URL, TOKEN_FILE, SCREENSHOTS = sys.argv[1:]
TOKEN = open(TOKEN_FILE).read().strip()
TIMEOUT = 60


def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--window-size=1400,1200",
    ]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService("/usr/bin/chromedriver")
    return webdriver.Chrome(options=options, service=service)


def api(path):
    with urllib.request.urlopen(f"{URL}/api/v1/{path}") as answer:
        return json.load(answer)


class Page:
    def __init__(self, driver):
        self.driver = driver

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    def until(self, condition, what):
        def holds(_):
            try:
                return condition()
            except Exception as error:  # the page changes under our hands
                self.error = error
                return False

        WebDriverWait(self.driver, TIMEOUT, 0.2).until(holds, f"never: {what}")

    def refreshed(self, times=2):
        count = lambda: int(self.find("html").get_attribute("data-refreshed") or 0)
        goal = count() + times
        self.until(lambda: count() >= goal, "a refresh")

    def press(self, *keys):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self):
        return self.driver.switch_to.active_element

    def tab_to(self, identifier):
        for _ in range(60):
            if self.focused().get_attribute("id") == identifier:
                return
            self.press(Keys.TAB)
        raise AssertionError(f"the keyboard does not reach #{identifier}")

    def shoot(self, name):
        self.driver.save_screenshot(f"{SCREENSHOTS}/{name}.png")


def shows_figures(page):
    page.driver.get(URL + "/")
    page.refreshed(3)
    assert page.text("#state") == "ready", page.text("#state")
    assert not page.find("#banner").is_displayed(), page.text("#banner")
    for tile in ["read", "write", "requests", "read-latency", "write-latency"]:
        page.until(lambda: page.text(f"#tile-{tile}")[0] in "123456789", f"a load on tile {tile}")
    page.until(lambda: page.text("#tile-clients")[0] in "123456789", "clients")
    for table, least in [
        ("reactors", 1), ("clients", 1), ("exports", 1), ("operations", 2), ("listeners", 1),
    ]:
        rows = page.driver.find_elements(By.CSS_SELECTOR, f"#{table} tbody tr")
        assert len(rows) >= least, f"{table}: {len(rows)} rows"
    for call in ["read", "write"]:
        page.until(lambda: "p99.9" in page.text(f"#tile-{call}-more"), "the other quantiles")
    # The server notes an interval every five seconds.
    page.until(lambda: len(points(page, "throughput")) >= 3, "intervals")
    assert "reactor-" in page.find("#chart-busy svg").get_attribute("aria-label")
    for chart in ["read", "write"]:
        label = page.find(f"#chart-{chart} svg").get_attribute("aria-label")
        assert all(f", {share} " in label for share in ["p50", "p99", "p99.9"]), label
        assert "–" not in label, label
    tops = [page.find(f"#chart-{name}").rect["y"] for name in ["throughput", "requests", "read", "write"]]
    assert len(set(tops)) == 1, f"the panels are not in one row: {tops}"


def points(page, chart):
    path = page.find(f"#chart-{chart} path").get_attribute("d") or ""
    return path.replace("L", "M").split("M")[1:]


def a_reload_loses_no_history(page):
    before = len(points(page, "throughput"))
    page.driver.refresh()
    page.refreshed(1)
    after = len(points(page, "throughput"))
    assert after >= before, f"{after} of {before} points after a reload"


def charts_tell_values_of_a_time(page):
    legend = lambda: page.text("#chart-throughput .legend")
    assert legend().startswith("now"), legend()
    svg = page.find("#chart-throughput svg")
    wide = svg.rect["width"]
    mouse = webdriver.ActionChains(page.driver)
    mouse.move_to_element_with_offset(svg, int(wide / 2) - 3, 0).perform()
    page.until(lambda: not legend().startswith("now"), "the time under the pointer")
    assert "/s" in legend() and ":" in legend().split()[0], legend()
    page.shoot("pointer")
    mouse.move_to_element(page.find("h1")).perform()
    page.until(lambda: legend().startswith("now"), "the latest values again")
    page.driver.execute_script("arguments[0].focus()", svg)
    page.press(Keys.ARROW_LEFT)
    first = legend()
    page.press(Keys.ARROW_LEFT)
    assert first != legend() and not first.startswith("now"), (first, legend())
    assert page.find("#chart-throughput .said").get_attribute("textContent") == svg.get_attribute("aria-label")
    page.press(Keys.ESCAPE)
    assert legend().startswith("now"), legend()
    scale = [mark.text for mark in page.driver.find_elements(By.CSS_SELECTOR, "#chart-throughput .scale span")]
    assert scale[0].endswith("/s") and scale[2].startswith("0 "), scale
    times = [mark.text for mark in page.driver.find_elements(By.CSS_SELECTOR, "#chart-throughput .times span")]
    assert len(set(times)) == 3 and all(time.count(":") == 2 for time in times), times
    for span in ["300", "3600", "900"]:
        page.find(f"#span option[value='{span}']").click()


def exports_and_clients_have_pages(page):
    for kind, table, heading in [("export", "exports", "Export /"), ("client", "clients", "Client ")]:
        page.find(f"#{table} tbody tr a").click()
        page.until(lambda: page.text("#h-detail").startswith(heading), f"the page of the {kind}")
        page.refreshed(3)
        drawn = lambda: page.find("#detail-throughput path").get_attribute("d")
        page.until(lambda: drawn().count("L") >= 2, "a line")
        assert not page.find("#detail-no-history").is_displayed()
        # The server has it, so that a page that is loaded anew shows it at once.
        before = drawn().count("L")
        page.driver.refresh()
        page.refreshed(1)
        assert drawn().count("L") >= before, "the line is gone after a reload"
        page.refreshed(2)
        assert "requests" in page.text("#detail-facts").lower()
        shown = page.find("#detail-of-client").is_displayed()
        assert shown == (kind == "client"), kind
        first = lambda: page.text("#detail-connections tbody td")
        page.until(lambda: not shown or first().isdigit(), "connections")
        assert page.find("#detail-latency").is_displayed() == (kind == "export")
        page.shoot(f"page-{kind}")
    # The address of the page alone leads there.
    page.driver.get(f"{URL}/#export={'%2F'}nowhere")
    page.driver.refresh()
    page.until(lambda: page.find("#detail-gone").is_displayed(), "that there is no such export")
    page.find("#detail a").click()
    page.until(lambda: not page.find("#detail").is_displayed(), "the end of the page")


def wrong_token_is_refused(page):
    page.find("#unlock").click()
    page.find("#token").send_keys("no-such-token-anywhere", Keys.ENTER)
    page.until(lambda: page.find("#unlock-dialog .error").is_displayed(), "a refusal")
    page.press(Keys.ESCAPE)
    assert page.text("#unlock") == "Unlock"
    page.find("#token").clear() if page.find("#token").is_displayed() else None


def keyboard_alone_unlocks(page):
    page.driver.get(URL + "/")
    page.refreshed(1)
    page.tab_to("unlock")
    page.press(Keys.ENTER)
    page.until(lambda: page.find("#unlock-dialog").is_displayed(), "the dialog")
    page.tab_to("token")
    page.press(TOKEN, Keys.ENTER)
    page.until(lambda: not page.find("#unlock-dialog").is_displayed(), "unlocking")
    assert page.text("#unlock") == "Lock"
    assert page.text("#requester") == "token (admin)", page.text("#requester")


def opens_are_listed_and_revoked(page):
    page.find("#clients tbody tr a").click()
    kinds = lambda: [cell.text for cell in page.driver.find_elements(
        By.CSS_SELECTOR, "#detail-states tbody td:first-child")]
    page.until(lambda: "open" in kinds(), "an open of the load by version 4")
    row = page.text("#detail-states tbody tr")
    assert "/scratch, " in row and "denies nothing" in row, row
    rows = lambda: len(page.driver.find_elements(By.CSS_SELECTOR, "#detail-states tbody tr"))
    shown = lambda: page.text("#states-page")
    # The load by version 4 has 60 opens. The keyboard alone turns the pages.
    page.until(lambda: (rows(), shown()) == (50, "page 1"), "a full page")
    page.driver.execute_script("arguments[0].focus()", page.find("#states-next"))
    for turns in range(2):  # There is no third page.
        page.press(Keys.ENTER)
        page.until(lambda: (rows(), shown()) == (10, "page 2"), "the rest")
        page.refreshed(1)
    assert page.focused() == page.find("#states-next"), "turning pages took the focus away"
    page.find("#states-previous").click()
    page.until(lambda: (rows(), shown()) == (50, "page 1"), "the first page again")
    page.driver.execute_script("arguments[0].scrollIntoView()", page.find("#detail-states"))
    page.shoot("states")
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": 400, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    width = page.driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, f"the page is {width} pixels wider than a narrow window"
    page.shoot("states-narrow")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    stateids = lambda: {one["stateid"] for one in api("nfs4/states?kind=open&limit=1000")["states"]}
    before = stateids()
    # By the keyboard: the first time it is thought better of.
    button = page.find("#detail-states tbody tr button")
    for answer in ["#confirm-dialog .cancel", "#confirm"]:
        page.driver.execute_script("arguments[0].focus()", button)
        page.refreshed(2)
        assert page.focused() == button, "a refresh took the focus away"
        page.press(Keys.ENTER)
        page.until(lambda: page.find("#confirm-dialog").is_displayed(), "the dialog")
        assert page.text("#confirm-of").startswith("The open of "), page.text("#confirm-of")
        assert stateids() == before, "revoked before it was confirmed"
        page.shoot("revoke")
        page.find(answer).send_keys(Keys.ENTER)
        page.until(lambda: not page.find("#confirm-dialog").is_displayed(), "the end of the dialog")
    page.until(lambda: before - stateids(), "the end of the open")
    page.find("#detail a").click()


def grace_period_is_ended(page):
    page.until(lambda: "It waits for " in page.text("#grace-progress"), "the grace period")
    assert page.find("#grace").is_displayed()
    page.shoot("grace")
    page.find("#grace-end").click()
    page.until(lambda: page.find("#confirm-dialog").is_displayed(), "the dialog")
    assert "grace period" in page.text("#confirm-of"), page.text("#confirm-of")
    assert api("nfs4/grace")["active"], "ended before it was confirmed"
    page.find("#confirm").click()
    page.until(lambda: not page.find("#grace").is_displayed(), "the end of the grace period")
    assert not api("nfs4/grace")["active"]


def clients_are_ended(page):
    # The load has a client for each connection, and does not end them when it fails.
    clients = lambda: api("nfs4/clients?limit=200")["clients"]
    youngest = min(clients(), key=lambda one: one["age_seconds"])
    button = lambda: page.find(f"#nfs4 button[aria-label='End client {youngest['owner']}']")
    page.until(lambda: button().is_displayed(), "a button that ends it")
    button().click()
    page.until(lambda: page.find("#confirm-dialog").is_displayed(), "the dialog")
    assert page.text("#confirm-title") == "End" and "of NFS version 4" in page.text("#confirm-of")
    assert "begins anew" in page.text("#confirm-effect"), page.text("#confirm-effect")
    page.shoot("end-client")
    page.find("#confirm").click()
    page.until(lambda: not page.find("#confirm-dialog").is_displayed(), "the end of the dialog")
    page.until(lambda: youngest["id"] not in {one["id"] for one in clients()}, "the end of the client")


def one_who_has_a_role_needs_no_token(page):
    # As with a client certificate, the browser shows who it is, and the page has no token.
    page.find("#unlock").click()
    page.until(lambda: page.text("#unlock") == "Unlock", "locking")
    assert page.text("#requester") == "", page.text("#requester")
    button = lambda: page.find("#exports tbody tr button")
    button().click()
    page.until(lambda: page.find("#unlock-dialog").is_displayed(), "a question for a token")
    page.press(Keys.ESCAPE)
    headers = lambda all: page.driver.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": all})
    page.driver.execute_cdp_cmd("Network.enable", {})
    headers({"Authorization": f"Bearer {TOKEN}"})
    page.until(lambda: page.text("#requester") == "token (admin)", "the name and the role")
    assert page.text("#unlock") == "Unlock"
    button().click()
    assert not page.find("#unlock-dialog").is_displayed()
    assert page.find("#limits-dialog").is_displayed(), "a token is asked for"
    page.press(Keys.ESCAPE)
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": 400, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    width = page.driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, f"the page is {width} pixels wider than a narrow window"
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    headers({})
    page.until(lambda: page.text("#requester") == "", "that the role is gone")


def fill(field, text):
    field.clear()
    field.send_keys(text)


def limits_are_set_and_taken_back(page):
    for table, first, of in [
        ("clients", lambda: api("clients")["clients"][0], "a client"),
        ("exports", lambda: api("exports")["exports"][0], "an export"),
    ]:
        button = page.find(f"#{table} tbody tr button")
        button.click()
        fill(page.find("#limit-iops"), "5000")
        fill(page.find("#limit-bandwidth"), "32MiB")
        page.shoot(f"limits-{table}")
        page.find("#limits-dialog button[value=ok]").click()
        page.until(lambda: not page.find("#limits-dialog").is_displayed(), f"limits of {of}")
        limits = first()["limits"]
        assert limits == {"iops": 5000, "bandwidth_bytes": 32 << 20}, limits
        page.until(lambda: "32.0 MiB/s" in page.text(f"#{table} tbody tr"), "the limit in the table")
        page.find(f"#{table} tbody tr button").click()
        page.find("#limits-remove").click()
        page.until(lambda: not page.find("#limits-dialog").is_displayed(), "no limits")
        assert first()["limits"] == {"iops": None, "bandwidth_bytes": None}
    page.find("#clients tbody tr button").click()
    fill(page.find("#limit-bandwidth"), "")
    fill(page.find("#limit-iops"), "0")
    page.find("#limits-dialog button[value=ok]").click()
    page.until(lambda: page.find("#limits-dialog .error").is_displayed(), "a refusal of 0")
    page.press(Keys.ESCAPE)


def focus_stays_while_figures_change(page):
    button = page.find("#exports tbody tr button")
    page.driver.execute_script("arguments[0].focus()", button)
    page.refreshed(3)
    assert page.focused() == button, "a refresh took the focus away"


def themes_and_sizes(page):
    colour = lambda: page.find("body").value_of_css_property("background-color")
    seen = set()
    for theme in ["light", "dark"]:
        page.find(f"#theme option[value={theme}]").click()
        seen.add(colour())
        page.refreshed(1)
        page.shoot(theme)
    assert len(seen) == 2, seen
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": 400, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    width = page.driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, f"the page is {width} pixels wider than a narrow window"
    page.shoot("narrow")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.find("#theme option[value=auto]").click()


def guide_fits_its_windows(page):
    wide = lambda: page.driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    seen = set()
    for theme in ["light", "dark"]:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": theme}]})
        for width in [400, 1400]:
            page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
                "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
            for name in ["", "operations#problem-in-use", "metrics", "status"]:
                page.driver.get(f"{URL}/docs/{name}")
                assert wide() <= 0, f"docs/{name} is {wide()} pixels wider than {width}"
                seen.add(page.find("body").value_of_css_property("background-color"))
            page.driver.get(f"{URL}/docs/operations#problem-in-use")
            top = page.driver.execute_script(
                "return document.getElementById('problem-in-use').getBoundingClientRect().top")
            assert 0 <= top < 1000, f"the entry of the problem is at {top}"
            page.shoot(f"guide-{theme}-{width}")
    assert len(seen) == 2, seen
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    page.driver.get(URL)
    page.until(lambda: page.text("#state") == "ready", "the dashboard again")


def drains_and_serves_again(page):
    page.find("#drain").click()
    fill(page.find("#drain-deadline"), "2")
    page.shoot("drain")
    page.find("#drain-dialog button[value=ok]").click()
    page.until(lambda: page.text("#state") in ("draining", "drained"), "draining")
    page.until(lambda: page.text("#state") == "drained", "the end of the drain")
    page.shoot("drained")
    page.find("#drain-cancel").click()
    page.until(lambda: page.text("#state") == "ready", "serving again")


def page_kept_its_policy(page):
    for entry in page.driver.get_log("browser"):
        # Refusals that this check provokes are logged by the browser, too.
        provoked = any(f"status of {code}" in entry["message"] for code in (401, 422))
        assert provoked or entry["level"] not in ("SEVERE", "WARNING"), entry
    for entry in page.driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked = message["params"]["request"]["url"]
            assert asked.startswith((URL, "data:", "chrome")), f"the page asked {asked}"


def main():
    driver = browser()
    try:
        page = Page(driver)
        for step in [
            shows_figures, a_reload_loses_no_history, charts_tell_values_of_a_time,
            exports_and_clients_have_pages, wrong_token_is_refused, keyboard_alone_unlocks,
            grace_period_is_ended, opens_are_listed_and_revoked, clients_are_ended, limits_are_set_and_taken_back,
            focus_stays_while_figures_change, themes_and_sizes, drains_and_serves_again,
            one_who_has_a_role_needs_no_token, guide_fits_its_windows, page_kept_its_policy,
        ]:
            try:
                step(page)
            except Exception:
                page.shoot("failed")
                raise
            print(f"    {step.__name__.replace('_', ' ')}")
    finally:
        driver.quit()


main()
