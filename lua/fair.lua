-- Stands in front of the scripts of a fair lock. They have in common
--
-- KEYS[1]  lock
-- KEYS[2]  queue: a sorted set of owners in the order of their arrival
-- KEYS[3]  tickets: a hash, "<until> <claim>" for each owner in the queue. The
--          ticket is alive until that time of the server's clock, in microseconds;
--          whoever is granted the lock by it has so many milliseconds to claim it
-- ARGV[1]  lease, milliseconds
-- ARGV[2]  owner
-- ARGV[3]  PUBLISH, SPUBLISH, or both
-- ARGV[4]  channel of grants, less the owner's client
-- ARGV[5]  how long the fencing counter outlives its newest token, milliseconds
--
-- What they cost does not depend on the length of the queue, but for the
-- logarithm in a sorted set. Dead tickets are met at the head only, each once.
local clock = redis.call('time')
local now = clock[1] * 1000000 + clock[2]

-- text writes a time or a token. Lua's own conversion keeps 14 digits, '%.0f' takes
-- three times as long, and there are servers where '%d' is good for 9 digits only.
local function text(number)
    return string.format('%d%06d', math.floor(number / 1000000), number % 1000000)
end

local function client(owner)
    return string.match(owner, '^(.*):')
end

-- pop takes the first live ticket out, and those before it. It returns its owner
-- and its claim.
local function pop()
    while true do
        local owner = redis.call('zpopmin', KEYS[2])[1]
        if not owner then
            return nil
        end
        local alive, claim = string.match(redis.call('hget', KEYS[3], owner) or '', '^(%d+) (%d+)$')
        redis.call('hdel', KEYS[3], owner)
        if alive and tonumber(alive) > now then
            return owner, claim
        end
    end
end

-- grant gives the lock, which is free, to an owner. It returns the token, 0 without
-- a counter, or nil and why not.
local function grant(owner, lease, counter)
    local token = 0
    if counter then
        token = newest(counter)
        if not token then
            return nil, {-1, counter, redis.call('type', counter).ok}
        end
        token = following(counter, token, ARGV[5])
    end
    redis.call('hset', KEYS[1], owner, '1')
    local armed = redis.pcall('pexpire', KEYS[1], lease)
    if armed ~= 1 then
        redis.call('del', KEYS[1])
        return nil, armed
    end
    return token
end

-- followers appends the first owners in the queue to words, as long as they are of
-- that client.
local function followers(words, client)
    local prefix = client .. ':'
    local function append(from, to)
        for _, owner in ipairs(redis.call('zrange', KEYS[2], from, to)) do
            if string.sub(owner, 1, #prefix) ~= prefix then
                return false
            end
            table.insert(words, owner)
        end
        return true
    end
    if append(0, 0) then -- if several clients queue, it is most often not even one
        append(1, 63)
    end
end

-- call grants the lock, which is free, to the owner of a ticket and tells it,
-- nobody else:
--
--   owner time claim token follower…
--
-- The followers are those of the same client whose turn it is after that; of a lock
-- that is fenced there are none.
--
-- It returns how many connections the message has reached, or an error if the
-- server refuses to send it; nil if there is no owner, or the lock cannot be granted,
-- which the owner will find out when it asks. An owner of the client own is sent
-- nothing: the message is returned as well, and the answer brings it there.
local function call(owner, claim, counter, own)
    local token = owner and grant(owner, claim, counter)
    if not token then
        return nil
    end
    local home = client(owner)
    local words = {owner, text(now), claim, token > 0 and text(token) or 0}
    if not counter then
        followers(words, home)
    end
    local message = table.concat(words, ' ')
    if home == own then
        return 0, message
    end
    return announce(ARGV[3], ARGV[4] .. home, message)
end

local function advance(counter, own)
    local owner, claim = pop()
    return call(owner, claim, counter, own)
end
