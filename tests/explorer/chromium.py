"""A headless Chromium, spoken to through its debugging pipe; no package needed beside Debian's chromium."""
import base64
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time

BINARY = os.environ.get("EDGEWISE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no Chromium here: install Debian's package chromium (apt-get install chromium), or name one in EDGEWISE_CHROMIUM"


class Chromium:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="edgewise-chromium-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        # Pages of /tmp as shared memory: containers often have little of their own. No sandbox: tests run as root there.
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
                   "--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir=" + self.profile.name, "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{back_write}', BINARY, *options],
                                        pass_fds=(to_read, back_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(back_write)
        self.numbers = itertools.count(1)
        self.answers, self.pages, self.lock = {}, {}, threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        buffer = b""
        while chunk := os.read(self.back, 1 << 16):
            buffer += chunk
            *messages, buffer = buffer.split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    with self.lock:
                        waiting = self.answers.pop(message["id"], None)
                    if waiting:
                        waiting.put(message)
                elif message.get("sessionId") in self.pages:
                    self.pages[message["sessionId"]].take(message)

    def call(self, method, session=None, timeout=60, **parameters):
        number, waiting = next(self.numbers), queue.Queue()
        with self.lock:
            self.answers[number] = waiting
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        answer = waiting.get(timeout=timeout)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def page(self, width=1440, height=900):
        return Page(self, width, height)

    def close(self):
        try:
            self.call("Browser.close", timeout=5)
        except Exception:
            self.process.kill()
        self.process.wait(timeout=20)
        self.profile.cleanup()


class Page:
    """One tab. `errors` has what its console was told and what was thrown in it."""

    def __init__(self, browser, width, height):
        self.browser, self.errors, self.requests = browser, [], []
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(width, height)

    def take(self, message):
        method, given = message["method"], message["params"]
        if method == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
            self.errors.append(" ".join(str(each.get("value")) for each in given["args"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.errors.append(given["entry"]["text"] + " " + given["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, url):
        self.call("Page.navigate", url=url)
        return self

    def eval(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "thrown"))
        return result["result"].get("value")

    def wait(self, expression, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if value := self.eval(expression):
                    return value
            except RuntimeError:
                pass  # the page is not there yet
            time.sleep(0.03)
        raise TimeoutError(f"waited {seconds} s for: {expression}; the console says {self.errors}")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, shift=False):
        more = {"button": "left", "clickCount": 1, "modifiers": 8 if shift else 0}
        self.mouse("mousePressed", x, y, **more)
        self.mouse("mouseReleased", x, y, **more)

    def key(self, key, shift=False):
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0, **(text if kind == "keyDown" else {}))

    def screenshot(self, path=None):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path:
            with open(path, "wb") as file:
                file.write(data)
        return data

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
