"""The web page of a locked `admit up`, in the browser of this machine."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import (
    Browser,
    BrowserContext,
    FilePayload,
    Page,
    async_playwright,
    expect,
)
from tools.chromium import FLAGS

from admittance.bench.system import Child
from admittance.events.system import DeadLetter
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.nats.login_tokens import token_of_credentials
from admittance.runtime.nats_server.jwt_issuer import new_key
from support.processes.fork_server import Answer, run_admit
from support.processes.forked_system import start
from support.servers import LIMIT, until

CHROMIUM = shutil.which("chromium")
HIDE = """
Object.defineProperty(document, "hidden", { value: true });
document.dispatchEvent(new Event("visibilitychange"));
"""
FLAVOR_AND_CHECK = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: reserved}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: money}
spec: {controllerName: admittance.dev/approval}
---
apiVersion: admittance.dev/v1alpha1
kind: MachinePool
metadata: {name: rack}
spec:
  provisioningClassName: rack
  machines: [{name: small, count: 2, resources: {cpu: 4}}]
"""
QUEUES = """---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  namespaceSelector: {{}}
  admissionChecks: [{check}]
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: reserved, resources: [{{name: cpu, nominalQuota: 2}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: {name}, namespace: default}}
spec: {{clusterQueue: {name}}}
"""
CHECK_OF = {"vision": "", "asked": "money"}
"""The check of each queue; "": none."""
SIMULATED = LIMIT * 1000
"""Milliseconds for a simulation: a process has to start."""
HOSTILE = "<script>document.title='broken'</script>"

KEEP_WHAT_WAS_SAID = """addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector("#live span");
  const keep = () => {
    if (place.textContent !== "Live") sessionStorage.setItem("said", place.textContent);
  };
  if (place) new MutationObserver(keep).observe(place, { childList: true });
})"""
"""A script that keeps what the page says while it is not live, also for the next page."""

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class Up:
    """`admit up` with its page, and commands of its admin."""

    def __init__(self, root: Path, child: Child) -> None:
        self.root = root
        self.child = child

    async def admit(self, *words: str) -> Answer:
        env = {"ADMIT_NATS_URL": "", "XDG_CONFIG_HOME": str(self.root)}
        return await asyncio.to_thread(run_admit, *words, env=env)

    async def out(self, *words: str) -> str:
        answer = await self.admit(*words)
        assert answer.status == 0, answer.err
        return answer.out.strip()

    async def link(self) -> str:
        """A fresh link."""
        return await self.out("web", "--data-dir", str(self.root / "data"))

    async def phase(self, name: str) -> str:
        stored = json.loads(await self.out("get", "workloads", "-o", "json"))
        reasons = {
            item["metadata"]["name"]: item["status"]["conditions"][0].get("reason", "")
            for item in stored["items"]
        }
        return str(reasons[name])

    @property
    def url(self) -> str:
        words = (self.root / "log.out").read_text().split()
        return words[words.index("web") + 1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    root = tmp_path_factory.mktemp("page")
    # The runner starts no job of this namespace, so that each stays as it is.
    runner = ("--job-namespace", "elsewhere", "--device", "nvidia.com/gpu=0,1")
    arguments = ["up", "--port", "0", "--data-dir", str(root / "data"), *runner]
    env = {"ADMIT_NO_WEB": ""}
    child = await start([*arguments, "--web", "127.0.0.1:0"], root / "log", env)
    try:
        await child.ready()
        made = Up(root, child)
        manifest = root / "queues.yaml"
        queues = [QUEUES.format(name=name, check=check) for name, check in CHECK_OF.items()]
        manifest.write_text("".join([FLAVOR_AND_CHECK, *queues]))
        await made.out("apply", "-f", str(manifest))
        await made.out("submit", "--name", "runs", "-q", "vision", "--cpu", "2", "--", "true")
        labels = ("-q", "vision", "--cpu", "2", "--", "echo", HOSTILE)
        await made.out("submit", "--name", "waits", *labels)
        for name in ("costs", "wastes"):
            await made.out("submit", "--name", name, "-q", "asked", "--cpu", "1", "--", "true")
        yield made
    finally:
        await child.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield made
        await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signed_in(up: Up, browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(await up.link())
    await expect(page.locator("h1")).to_have_text("Workloads")
    await page.close()
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(signed_in: BrowserContext) -> AsyncIterator[Page]:
    page = await signed_in.new_page()
    page.set_default_timeout(LIMIT * 1000)
    yield page
    await page.close()


def base(up: Up) -> str:
    parts = urlsplit(up.url)
    return f"{parts.scheme}://{parts.netloc}"


def web_processes(up: Up) -> list[int]:
    """The process ids of the page since the start of `admit up`."""
    lines = (up.root / "log").read_text().splitlines()
    found = (json.loads(line) for line in lines if '"service_process_started"' in line)
    return [line["pid"] for line in found if line["service"] == "web"]


def asked(up: Up, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
    """The status and the text of an answer to a program."""
    return asked_at(urlsplit(up.url).netloc, method, path, body, **headers)


def asked_at(at: str, method: str, path: str, body: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(at, timeout=LIMIT)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


async def test_a_request_without_a_session_is_led_to_the_sign_in(up: Up) -> None:
    assert (await asyncio.to_thread(asked, up, "GET", "/workloads/a/b"))[0] == 303
    assert (await asyncio.to_thread(asked, up, "GET", "/?format=json"))[0] == 401
    assert (await asyncio.to_thread(asked, up, "GET", "/live"))[0] == 401


async def test_a_foreign_name_and_a_foreign_form_are_refused(up: Up) -> None:
    assert (await asyncio.to_thread(asked, up, "GET", "/", host="evil.example"))[0] == 421
    foreign = {"origin": "http://evil.example"}
    assert (await asyncio.to_thread(asked, up, "POST", "/signin", "", **foreign))[0] == 403


async def test_a_body_over_the_limit_is_refused(up: Up) -> None:
    own = {"origin": base(up)}
    status, text = await asyncio.to_thread(
        asked, up, "POST", "/signin", "token=" + "x" * (1 << 20), **own
    )
    assert (status, text) == (413, "the body has more than 1,048,576 bytes\n")


async def test_a_wrong_code_or_token_signs_no_user_in(up: Up) -> None:
    revoked = token_of_credentials(f"# user: ada\n{new_key().seed}\n")
    for body in ("token=", "token=admit_abc", f"token={revoked}", f"code={'0' * 32}"):
        assert await asyncio.to_thread(asked, up, "POST", "/signin", body) == (
            403,
            "This code or token signs in no user: it is wrong, used, expired or revoked.\n",
        )
    browser = {"accept": "text/html", "origin": base(up)}
    _, shown = await asyncio.to_thread(asked, up, "POST", "/sign-in", "token=x", **browser)
    assert '<p class="note bad" role="alert">This code or token signs in no user' in shown


async def test_a_form_without_code_and_token_gets_one_line(up: Up) -> None:
    status, text = await asyncio.to_thread(asked, up, "POST", "/signin", "pass=x")
    assert (status, text) == (400, "The form has neither a field code nor a field token.\n")


async def test_a_program_signs_in_with_the_code_of_a_link(up: Up) -> None:
    code = (await up.link()).partition("/#")[2]
    assert (await asyncio.to_thread(asked, up, "POST", "/signin", f"code={code}"))[0] == 303
    assert (await asyncio.to_thread(asked, up, "POST", "/signin", f"code={code}"))[0] == 403


@needs_chromium
async def test_a_link_signs_in_once(up: Up, browser: Browser) -> None:
    link = await up.link()
    for expected in ("Workloads", "Sign in"):
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(link)
        await expect(page.locator("h1")).to_have_text(expected)
        assert "#" not in page.url
        await context.close()


@needs_chromium
async def test_a_workload_says_why_it_waits(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/workloads/default/waits")
    await expect(page).to_have_title("waits Pending · Admittance")
    await expect(page.locator("#say")).to_have_text(
        "It waits because no flavor takes its 2 cpu now: reserved is 2 short."
    )
    await expect(page.locator("#held a.name")).to_have_text("runs")
    await page.click("#held a.name")
    await expect(page.locator("h1")).to_have_text("runs")


@needs_chromium
async def test_a_fact_on_the_log_leads_to_the_workload_as_it_was(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/workloads/default/waits")
    await page.locator("#log summary").last.click()
    await page.locator("#log li").last.get_by_text("As it was then").click()
    bar = page.locator("#past")
    await bar.get_by_text("This is the past").wait_for()
    assert await page.locator("#acts").count() == 0
    await bar.get_by_role("button", name="Show").click()
    assert "step=1" in page.url
    await bar.get_by_role("link", name="now").click()
    assert page.url.endswith("/workloads/default/waits")
    answer = await page.goto(f"{base(up)}/queues?at=yesterday")
    assert answer is not None and answer.status == 400


@needs_chromium
async def test_lesser_pages_are_in_a_list_so_that_the_menu_has_one_line(page: Page, up: Up) -> None:
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.goto(f"{base(up)}/queues")
    rows = "links => new Set(links.map((link) => link.offsetTop)).size"
    links = page.locator("header nav > ul > li > a")
    assert await links.evaluate_all(rows) == 1
    header = await page.locator("header.top").bounding_box()
    assert header is not None and header["height"] < 60  # the user is in the same line
    await page.click(".others summary")
    await page.click(".others a[href='/events']")
    await expect(page.locator("nav > ul > li > a[aria-current]")).to_have_text("Events")


@needs_chromium
async def test_queues_lead_to_their_pending_workloads(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/queues")
    await expect(page.locator("#queue-vision .v")).to_have_text("2 / 2")
    await expect(page.locator("#queue-vision .spark")).to_have_count(2)
    await expect(page.locator("#day")).to_contain_text("last 24 hours")
    await page.click("#queue-vision a.name")
    await expect(page).to_have_title("1 pending in queue vision · Admittance")
    await expect(page.locator("#quota .v")).to_have_text("2 / 2")
    await expect(page.locator("#rows [data-row] a.name")).to_have_text(["waits"])
    await expect(page.locator("#rows .sh")).to_have_text("2 of 2 cpu")
    answer = await page.goto(f"{base(up)}/queues/nowhere")
    assert answer is not None and answer.status == 404


@needs_chromium
async def test_a_chip_chooses_what_waits_for_one_reason(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/pending")
    names = page.locator("#rows [data-row] a.name")
    await expect(names).to_have_text(["costs", "wastes", "waits"])
    await page.get_by_role("link", name="QuotaReserved 2").click()
    await expect(names).to_have_text(["costs", "wastes"])
    await page.get_by_role("link", name="WaitingForQuota 1").click()
    await expect(names).to_have_text(["waits"])
    await expect(page.locator("#chips [aria-current]")).to_have_text("WaitingForQuota 1")
    for query in ("skip=many", "state=Running"):
        answer = await page.goto(f"{base(up)}/pending?{query}")
        assert answer is not None and answer.status == 400


@needs_chromium
async def test_a_machine_is_drained_and_undrained_with_buttons(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/machines")
    await expect(page.locator(".devices .word")).to_have_text(["free", "free"])
    await page.click(".machines [id^=acts-] summary")
    await page.fill(".machines [name=reason]", "a <new> fan")
    await page.click(".machines [id^=drain-] button")
    await page.click("#confirm button[value=yes]")
    await expect(page.locator(".machines .about")).to_contain_text("It is drained: a <new> fan.")
    await expect(page.locator(".devices .word")).to_have_text(["drained", "drained"])
    [machine] = json.loads(await up.out("get", "runners", "-o", "json"))["items"]
    assert machine["spec"]["drain"]["reason"] == "a <new> fan"
    await page.click(".machines [id^=acts-] summary")
    await page.click(".machines [id^=undrain-] button")
    await expect(page.locator(".devices .word")).to_have_text(["free", "free"])


@needs_chromium
async def test_events_wait_for_the_pointer_and_lead_to_their_facts(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/events?namespace=default&type=reprioritized,submitted")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.hover("#events li")
    await up.out("priority", "workload", "waits", "5")
    await expect(page.locator("#fresh")).to_have_text("1 new, show")
    await expect(page.locator("#events .what").first).to_have_text("submitted")
    await page.click("#fresh")
    await expect(page.locator("#events .what").first).to_have_text("reprioritized")
    await page.click("#events .what a")
    await expect(page.locator("#data-part pre")).to_contain_text('"priority": 5')
    answer = await page.goto(f"{base(up)}/events/999999999")
    assert answer is not None and answer.status == 404


@needs_chromium
async def test_usage_has_the_rows_of_the_command(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/usage?by=user&unit=cpu-hours")
    await expect(page.locator("#used [data-row] td").first).to_have_text("admin")
    asked = "usage", "-A", "--by", "user", "--unit", "cpu-hours", "-o"
    twin = await page.request.get(f"{base(up)}/usage?by=user&unit=cpu-hours&format=json")
    fields = json.loads(await up.out(*asked, "json"))["rows"][0].keys()
    assert (await twin.json())["rows"][0].keys() == fields
    rows = await page.request.get(f"{base(up)}/usage?by=user&unit=cpu-hours&format=csv")
    assert (await rows.text()).splitlines()[0] == (await up.out(*asked, "csv")).splitlines()[0]
    answer = await page.goto(f"{base(up)}/usage?by=horse")
    assert answer is not None and answer.status == 400


@needs_chromium
async def test_a_page_has_a_twin_in_json(page: Page, up: Up) -> None:
    answer = await page.request.get(f"{base(up)}/workloads/default/waits?format=json")
    view = await answer.json()
    assert (view["title"], view["word"]["state"]) == ("waits Pending", "pending")
    assert view["rooms"]["rows"][0]["short"] == "2"


@needs_chromium
async def test_a_name_that_does_not_exist_has_near_names(page: Page, up: Up) -> None:
    answer = await page.goto(f"{base(up)}/workloads/default/wait")
    assert answer is not None and answer.status == 404
    await expect(page.locator("main a.name").first).to_have_text("waits")
    for text, status in (("waitz", 404), ("default/waitz", 404), ("", 400)):
        answer = await page.goto(f"{base(up)}/find?q={text}")
        assert answer is not None and answer.status == status
    await page.goto(f"{base(up)}/find?q=waits")
    await expect(page.locator("h1")).to_have_text("waits")


@needs_chromium
async def test_a_change_comes_to_an_open_page_and_keeps_what_was_typed(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/workloads/default/waits")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.click("#same summary")
    await page.fill("#field-priority", "77")
    await up.out("priority", "workload", "waits", "3")
    await expect(page.locator("#fact-list")).to_contain_text("Priority 3", use_inner_text=True)
    assert await page.input_value("#field-priority") == "77"
    assert await page.get_attribute("#same", "open") is not None


@needs_chromium
async def test_a_decision_is_decided_again_in_the_log(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/workloads/default/runs")
    row = page.locator("#log > li", has=page.locator(".what", has_text="assigned"))
    await row.locator("summary").click()
    await expect(row.locator("dd", has_text="2 cpu on reserved, where 2 were free")).to_be_visible()
    await row.locator("button").click()
    await expect(row.locator("[role=status] b")).to_have_text("The same comes out.")


@needs_chromium
async def test_a_workload_that_is_deleted_while_looked_at_says_so(page: Page, up: Up) -> None:
    await up.out("submit", "--name", "brief", "-q", "vision", "--cpu", "2", "--", "true")
    await page.goto(f"{base(up)}/workloads/default/brief")
    await page.click("text=Manifest")
    await expect(page.locator("pre").first).to_contain_text("name: brief")
    await page.go_back()
    await up.out("delete", "workload", "brief")
    await expect(page.locator("h1")).to_have_text("Deleted")
    await expect(page.locator("#log .what").first).to_have_text("deleted")


@needs_chromium
async def test_buttons_change_the_workload(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/workloads/default/waits")
    await page.click("#act-hold button")
    await expect(page.locator("#act-release")).to_be_visible()
    assert await up.phase("waits") == "OnHold"
    await page.click("#act-release button")
    await expect(page.locator("#act-hold")).to_be_visible()
    await page.click("#act-stop button")
    await page.click("#confirm button[value=no]")
    await expect(page.locator("#act-stop")).to_be_visible()
    await page.click("#act-stop button")
    await page.click("#confirm button[value=yes]")
    await expect(page).to_have_title("waits Deactivated · Admittance")
    await page.click("#act-activate button")
    await expect(page).to_have_title("waits Pending · Admittance")


@needs_chromium
async def test_a_remedy_fills_the_form_that_tries_it(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/workloads/default/waits")
    await page.click("#ways a")
    await expect(page.locator("#yaml")).to_have_value(re.compile("nominalQuota: '4'"))
    await page.focus("#yaml")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#diff-starts a.name")).to_have_text("waits", timeout=SIMULATED)
    await expect(page.locator(".changed td")).to_have_text("2 4")
    await expect(page.locator("#apply button")).to_be_visible()


@needs_chromium
async def test_a_tried_change_is_applied_unless_the_object_has_changed(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/whatif?workload=default/waits&priority=4")
    await page.click("#try button")
    await expect(page.locator("#apply button")).to_be_visible(timeout=SIMULATED)
    await up.out("priority", "workload", "waits", "5")
    await page.click("#apply button")
    await page.click("#confirm button[value=yes]")
    await expect(page.locator("[role=alert]")).to_contain_text("changed since this was tried")
    await page.click("#try button")
    await page.click("#apply button")
    await page.click("#confirm button[value=yes]")
    await expect(page.locator(".note")).to_have_text("Workload default/waits has priority 4.")
    stored = json.loads(await up.out("get", "workloads", "waits", "-o", "json"))
    assert stored["spec"]["priority"] == 4


@needs_chromium
async def test_a_hostile_manifest_gets_one_line_and_stays_in_the_field(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/whatif")
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in itertools.pairwise("abcdefghi")
    )
    await page.fill("#yaml", bomb)
    await page.click("#try button")
    await expect(page.locator("[role=alert] p")).to_have_count(1)
    await expect(page.locator("[role=alert]")).to_contain_text("more than 1000000 values")
    assert await page.input_value("#yaml") == bomb


@needs_chromium
async def test_a_chosen_file_fills_the_manifests_and_comes_without_a_script(
    page: Page, up: Up, signed_in: BrowserContext
) -> None:
    manifest = QUEUES.format(name="filed", check="")
    file: FilePayload = {"name": "q.yaml", "mimeType": "text/yaml", "buffer": manifest.encode()}
    await page.goto(f"{base(up)}/whatif")
    await page.set_input_files("#file", files=file)
    await expect(page.locator("#yaml")).to_have_value(manifest)

    await page.route("**/*.js", lambda route: route.abort())
    await page.goto(f"{base(up)}/whatif")
    await page.set_input_files("#file", files=file)
    await page.get_by_role("button", name="Try it").click(timeout=SIMULATED)
    await expect(page.locator("#yaml")).to_have_value(manifest, timeout=SIMULATED)
    await expect(page.locator(".changed h2").first).to_contain_text("ClusterQueue filed")


@needs_chromium
async def test_bad_input_is_refused_with_a_line_on_the_page(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/workloads/default/waits")
    await page.fill("#field-priority", "high")
    await page.click("#act-priority button")
    await expect(page.locator("[role=alert]")).to_have_text(
        'Refused: the priority "high" is not a whole number'
    )


@needs_chromium
async def test_a_form_of_another_session_is_refused(page: Page, up: Up) -> None:
    answer = await page.request.post(
        f"{base(up)}/workloads/default/waits/stop",
        form={"csrf": "0"},
        headers={"origin": base(up)},
    )
    assert answer.status == 403


@needs_chromium
@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("/", "light"),
        ("/queues", "light"),
        ("/pending", "dark"),
        ("/queues/vision", "light"),
        ("/checks", "light"),
        ("/machines", "light"),
        ("/health", "light"),
        ("/whatif", "light"),
        ("/events", "dark"),
        ("/usage", "light"),
        ("/capacity", "dark"),
        ("/workloads/default/waits", "light"),
        ("/workloads/default/waits", "dark"),
        ("/workloads/default/waits/logs", "light"),
        ("/workloads/default/waits/manifest", "dark"),
        ("/workloads/default/nope", "dark"),
        ("/workloads/default/waits?step=1", "light"),
    ],
)
async def test_pages_are_accessible_and_fit_a_narrow_screen(
    page: Page, up: Up, path: str, scheme: Literal["light", "dark"]
) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": 380, "height": 800})
    await page.goto(f"{base(up)}{path}")
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await page.evaluate(wide)


@needs_chromium
async def test_health_shows_findings_and_the_bytes_of_dead_letters(page: Page, up: Up) -> None:
    service = ConnectionOptions(creds=str(up.root / "data/auth/workload-controller.creds"))
    bus = await Bus.connect(up.child.url, name="test", access=service)
    broken = HOSTILE.encode() + b"\xff"
    letter = DeadLetter(service="w", subject="x", reason=HOSTILE, data64=broken)
    subject = "admit.deadletter.workload-controller"
    await bus.publish(Outgoing(subject, msgspec.json.encode(letter)))
    await bus.close()
    await page.goto(f"{base(up)}/health")
    await expect(page.locator("#services")).to_contain_text("workload-controller")
    await expect(page.locator("#rows-consumers th").first).to_be_visible()
    await page.click("#letters summary")
    await expect(page.locator("#letters pre")).to_have_text(broken.hex(" "))


@needs_chromium
async def test_capacity_shows_that_a_built_in_provider_answers(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/capacity")
    await expect(page.locator("#class-rack")).to_contain_text("Answers")


@needs_chromium
async def test_the_inbox_gives_verdicts(page: Page, up: Up) -> None:
    await page.goto(f"{base(up)}/checks")
    inbox = page.locator("#inbox [data-row] a.name")
    await expect(inbox).to_have_text(["costs", "wastes"])
    await page.get_by_role("button", name="Approve money of costs").click()
    await expect(inbox).to_have_text(["wastes"])
    await page.get_by_role("button", name="Deny money… of wastes").click()
    await page.click("#confirm button[value=no]")
    assert await up.phase("wastes") == "QuotaReserved"
    await page.get_by_role("button", name="Deny money… of wastes").click()
    await page.click("#confirm button[value=yes]")
    await expect(page.locator("#inbox .empty")).to_be_visible()
    await expect(page.locator("#check-money .st")).to_have_text("By people")


@needs_chromium
async def test_workloads_of_other_namespaces_move_the_numbers_of_a_user(
    up: Up, browser: Browser
) -> None:
    auth, creds = str(up.root / "data" / "auth"), str(up.root / "bea.creds")
    await up.out("auth", "add", "user", "bea", "-n", "elsewhere", "--dir", auth, "-o", creds)
    context = await browser.new_context()
    page = await signed_in_by_token(up, context, "bea")
    await page.goto(f"{base(up)}/queues")
    await expect(page.locator("#live")).to_have_text("Live")
    count = page.locator("#queue-vision .count").first
    before = int((await count.inner_text()).split()[0])
    await up.out("submit", "--name", "hidden", "-q", "vision", "--cpu", "2", "--", "true")
    await expect(count).to_contain_text(str(before + 1))
    await up.out("delete", "workload", "hidden")
    await expect(count).to_contain_text(str(before))
    await context.close()


async def signed_in_by_token(up: Up, context: BrowserContext, user: str) -> Page:
    """A page on which the user has signed in with a token."""
    token = await up.out("auth", "token", user, "--dir", str(up.root / "data" / "auth"))
    page = await context.new_page()
    page.set_default_timeout(LIMIT * 1000)
    await page.goto(f"{base(up)}/signin")
    await page.fill("#token", token)
    await page.click("#sign-in button")
    await expect(page.locator(".signed-in span")).to_have_text(user)
    return page


@needs_chromium
async def test_the_first_page_of_an_approver_is_the_inbox(up: Up, browser: Browser) -> None:
    auth, creds = str(up.root / "data" / "auth"), str(up.root / "ann.creds")
    await up.out("auth", "add", "approver", "ann", "-n", "default", "--dir", auth, "-o", creds)
    context = await browser.new_context()
    page = await signed_in_by_token(up, context, "ann")
    await expect(page).to_have_url(f"{base(up)}/checks")
    await page.goto(f"{base(up)}/workloads/default/runs")
    await expect(page.locator("h1")).to_have_text("runs")
    await expect(page.locator("#acts, #output, .log button")).to_have_count(0)
    await context.close()


@needs_chromium
async def test_a_revoked_user_is_signed_out_at_once(up: Up, browser: Browser) -> None:
    auth = str(up.root / "data" / "auth")
    creds = str(up.root / "ada.creds")
    spaces = ("-n", "another", "-n", "default")
    await up.out("auth", "add", "user", "ada", *spaces, "--dir", auth, "-o", creds)
    context = await browser.new_context()
    page = await signed_in_by_token(up, context, "ada")
    await expect(page.locator("#rows-running [data-row] a.name").first).to_have_text("runs")
    await page.goto(f"{base(up)}/pending?state=Pending")
    await expect(page.locator("#rows [data-row] a.name")).to_have_text(["waits"])
    await page.goto(f"{base(up)}/workloads/elsewhere/x")
    await expect(page.locator("h1")).to_have_text("Not found")
    await page.goto(f"{base(up)}/health")
    await expect(page.locator("h1")).to_have_text("Not found")
    await page.goto(f"{base(up)}/checks")
    await expect(page.locator("#check-money")).to_be_visible()
    await page.goto(f"{base(up)}/workloads/default/waits")
    await expect(page.locator("#live")).to_have_text("Live")
    await up.out("auth", "revoke", "ada", "--dir", auth)
    await page.wait_for_url("**/signin?next=*")
    await context.close()


@needs_chromium
async def test_visible_tabs_without_a_shared_worker_have_one_stream(
    signed_in: BrowserContext, up: Up
) -> None:
    pages = [await signed_in.new_page() for _ in range(2)]
    for page in pages:
        await page.add_init_script("delete window.SharedWorker")
        await page.goto(f"{base(up)}/workloads/default/waits")
    await up.out("priority", "workload", "waits", "5")
    for page in pages:
        facts = page.locator("#fact-list")
        await expect(facts).to_contain_text("Priority 5", use_inner_text=True)
    held = await pages[0].evaluate("navigator.locks.query()")
    assert (len(held["held"]), len(held["pending"])) == (1, 1)
    leader, other = pages
    await leader.evaluate(HIDE)
    await up.out("priority", "workload", "waits", "6")
    await expect(other.locator("#fact-list")).to_contain_text("Priority 6", use_inner_text=True)
    await other.evaluate(HIDE)
    await other.wait_for_function("async () => !(await navigator.locks.query()).held.length")
    for page in pages:
        await page.close()


async def test_a_proxy_names_the_person_that_it_has_signed_in(up: Up) -> None:
    auth, people = str(up.root / "data" / "auth"), up.root / "people"
    people.mkdir(mode=0o700)
    creds = str(people / "eve.creds")
    await up.out("auth", "add", "viewer", "eve", "--dir", auth, "-o", creds)
    trust = ("--trust-header", "X-User", "--people", str(people))
    arguments = ["serve", "web", "--nats", up.child.url, "--web", "127.0.0.1:0", *trust]
    served = await start(arguments, up.root / "served", {})
    printed = up.root / "served.out"
    try:
        await until(lambda: printed.read_text().endswith("\n"), LIMIT)
        [_, url] = printed.read_text().split()
        at = urlsplit(url).netloc

        def status(**headers: str) -> tuple[int, str]:
            return asked_at(at, "GET", "/?format=json", "", **headers)

        assert (await asyncio.to_thread(status, x_user="eve"))[0] == 200
        refused = (403, "This name signs in no user.\n")
        for name in ("ada", "../people/eve", ""):
            assert await asyncio.to_thread(status, x_user=name) == refused
        assert (await asyncio.to_thread(status))[0] == 401
    finally:
        await served.stop()


@needs_chromium
async def test_a_page_says_since_when_it_is_not_live_and_heals(
    signed_in: BrowserContext, up: Up
) -> None:
    page = await signed_in.new_page()
    await page.add_init_script(KEEP_WHAT_WAS_SAID)
    await page.goto(f"{base(up)}/workloads/default/waits")
    await expect(page.locator("#live")).to_have_text("Live")
    started = web_processes(up)
    os.kill(started[-1], signal.SIGKILL)
    # The sessions were in the memory of the process, which `admit up` has started again.
    await page.wait_for_url("**/signin?next=*")
    assert len(web_processes(up)) > len(started)
    said = await page.evaluate("sessionStorage.getItem('said')")
    assert re.fullmatch(r"Not live, as of \d\d:\d\d:\d\d", said)
    await page.goto(await up.link())
    await expect(page.locator("h1")).to_have_text("Workloads")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.close()
