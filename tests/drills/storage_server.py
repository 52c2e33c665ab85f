#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""storage_server.py - an S3 storage on the loopback address, for storage.sh.

Needs moto (pip install 'moto[server,s3,iam]'), which checks signatures and
permissions with Amazon's own botocore. Prints its address and the key and
secret of a user who may use the buckets `models` and `nowhere`, of which only
the first exists, and not the bucket `denied`. Commands come from standard
input: "damage KEY" flips a byte of an object, "steps PREFIX" prints which steps
there are, "parts KEY" in how many parts an object was sent, "text KEY" prints a
small object, "sent KEY" how many parts of an object, and how often all of it,
were sent since it was asked last, "open PREFIX" how many uploads in parts are
open. "fail late" lets the next end of an upload in parts answer 200 with an
error in it, "fail lost" does it but answers 500; "fail short" keeps half of the
next object of a step that is sent, "fail page" answers the next list with a page
of HTML. "conditions ignored" puts objects whatever If-Match and If-None-Match
say, as older storages do, "conditions refused" answers such requests with 501,
"conditions met" is as at first. "slow BYTES" makes a second address whose connections pass so many
bytes a second (0: none at all) and prints it. Ends with its input."""
import json
import os
import socket
import sys
import threading
import time
import urllib.parse

FREE_REQUESTS = 5  # those below that make users and buckets
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(FREE_REQUESTS)

import boto3  # noqa: E402
from moto.moto_server import threaded_moto_server  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

POLICY = {
    "Version": "2012-10-17",
    "Statement": [{
        "Effect": "Allow", "Action": "s3:*",
        "Resource": ["arn:aws:s3:::models", "arn:aws:s3:::models/*",
                     "arn:aws:s3:::nowhere", "arn:aws:s3:::nowhere/*"]}],
}


class Watched:
    """Moto's application, whose requests are counted and may fail."""

    def __init__(self, app):
        self.app = app

    def __call__(self, request, start):
        query = urllib.parse.parse_qs(request.get("QUERY_STRING", ""))
        key = request.get("PATH_INFO", "").removeprefix("/models/")
        if request["REQUEST_METHOD"] == "PUT":
            sent = SENT.setdefault(key, [0, 0])
            sent["partNumber" not in query] += 1
        if CONDITIONS.intersection(request) and \
                request["REQUEST_METHOD"] == "PUT":
            return self.put_if(request, start)
        if FAILS == ["page"] and "list-type" in query:
            FAILS.pop()
            start("200 OK", [("Content-Type", "text/html")])
            return [b"<html>please log in</html>"]
        if FAILS == ["short"] and request["REQUEST_METHOD"] == "PUT" and \
                "/step-" in key:
            FAILS.pop()
            answer = self.app(request, start)
            body = STORAGE[0].get_object(Bucket="models", Key=key)["Body"].read()
            STORAGE[0].put_object(Bucket="models", Key=key,
                                  Body=body[:len(body) // 2])
            return answer
        ends = request["REQUEST_METHOD"] == "POST" and "uploadId" in query
        if not ends or not FAILS:
            return self.app(request, start)
        if FAILS.pop() == "lost":
            b"".join(self.app(request, lambda *_: None))
            start("500 Lost", [("Content-Length", "0")])
            return [b""]
        request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
        start("200 OK", [("Content-Type", "application/xml")])
        return [b"<?xml version='1.0'?>\n<Error><Code>InternalError</Code>"
                b"<Message>late</Message></Error>"]


    def put_if(self, request, start):
        """An object that is put only where none, or another, is."""
        if HOW[0] == "refused":
            request["wsgi.input"].read(int(request["CONTENT_LENGTH"]))
            start("501 Not Implemented", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NotImplemented</Code></Error>"]
        if HOW[0] == "ignored":
            for name in CONDITIONS.intersection(request):
                del request[name]
        with LOCK:
            return self.app(request, start)


SENT, FAILS, STORAGE, HOW = {}, [], [], ["met"]
CONDITIONS = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}
LOCK = threading.Lock()


class Slow:
    """Passes connections on to the server, so many bytes a second."""

    def __init__(self, port, rate):
        self.port, self.rate = port, rate
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.port))
            for one, other, rate in (near, far, self.rate), (far, near, 0):
                threading.Thread(target=self.pass_on, daemon=True,
                                 args=(one, other, rate)).start()

    def pass_on(self, one, other, rate):
        try:
            while data := one.recv(max(rate // 20, 1) if rate else 65536):
                if one.getsockname()[1] == self.listener.getsockname()[1]:
                    if rate == 0:
                        time.sleep(3600)
                    time.sleep(len(data) / rate)
                other.sendall(data)
        except OSError:
            pass
        for end in one, other:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def client(service, url, key="first", secret="first"):
    return boto3.client(service, endpoint_url=url, region_name="us-east-1",
                        aws_access_key_id=key, aws_secret_access_key=secret)


def command(storage, port, words):
    if words[0] == "damage":
        body = storage.get_object(Bucket="models", Key=words[1])["Body"].read()
        body = body[:-1] + bytes([body[-1] ^ 1])
        storage.put_object(Bucket="models", Key=words[1], Body=body)
        return "damaged"
    if words[0] == "text":
        body = storage.get_object(Bucket="models", Key=words[1])["Body"]
        return body.read().decode().strip()
    if words[0] == "sent":
        return "%d %d" % tuple(SENT.pop(words[1], (0, 0)))
    if words[0] == "open":
        found = storage.list_multipart_uploads(Bucket="models",
                                               Prefix=words[1])
        return str(len(found.get("Uploads", [])))
    if words[0] == "fail":
        FAILS.append(words[1])
        return "it will"
    if words[0] == "conditions":
        HOW[0] = words[1]
        return "they are"
    if words[0] == "slow":
        return Slow(port, int(words[1])).url
    if words[0] == "parts":
        tag = storage.head_object(Bucket="models", Key=words[1])["ETag"]
        return tag.strip('"').partition("-")[2] or "whole"
    found = storage.list_objects_v2(Bucket="models", Prefix=words[1] + "/step-")
    keys = [entry["Key"].split("/") for entry in found.get("Contents", [])]
    return " ".join(sorted({key[-2] for key in keys}))


def main():
    plain = threaded_moto_server.DomainDispatcherApplication
    threaded_moto_server.DomainDispatcherApplication = \
        lambda *arguments: Watched(plain(*arguments))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
    iam, storage = client("iam", url), client("s3", url)
    storage.create_bucket(Bucket="models")
    storage.create_bucket(Bucket="denied")
    iam.create_user(UserName="trainer")
    iam.put_user_policy(UserName="trainer", PolicyName="models",
                        PolicyDocument=json.dumps(POLICY))
    key = iam.create_access_key(UserName="trainer")["AccessKey"]
    print(url, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
    storage = client("s3", url, key["AccessKeyId"], key["SecretAccessKey"])
    STORAGE.append(storage)
    for line in sys.stdin:
        print(command(storage, server.get_host_and_port()[1], line.split()),
              flush=True)


main()
