local replies = {}
-- Stands in front of the scripts for several callers: each caller is answered as if alone.
--
-- outcomes answers each of so many callers without a reply yet: with the result of answer(i),
-- or, in place of an error, with the text of the error: clients do not expect an error in the
-- middle of a reply.
local function outcomes(callers, answer, replies)
    for i = 1, callers do
        local ok, reply = true, replies[i]
        if not reply then
            ok, reply = pcall(answer, i)
        end
        local err = type(reply) == 'table' and reply.err or not ok and reply
        if err then -- some versions of Redis put the place in the script before it
            reply = string.gsub(string.gsub(err, '@?user_script:%s*%d+:%s*', ''), '^%-', '')
            if not string.find(reply, '^%u+ ') then
                reply = 'ERR ' .. reply
            end
            if i == 1 and string.find(reply, '^READONLY ') then -- nothing was done, and nothing will be
                return {err = reply}
            end
        end
        replies[i] = reply
    end
    return replies
end
-- Stands in front of the scripts that may meet foreign keys.
--
-- kind returns 'none', 'lock' with its owner and hold count, or the type of another key. A hash
-- is a lock if the hash has one field, named like an owner, with a number: a script neither
-- waits for nor removes an application's hash under the same name.
local function kind(key)
    local size = redis.pcall('hlen', key)
    if type(size) == 'table' then
        local what = redis.call('type', key).ok
        if what ~= 'hash' then
            return what
        end
        size = redis.call('hlen', key) -- is not allowed: fails again
    elseif size == 0 then
        return 'none'
    end
    if size ~= 1 then
        return redis.pcall('hexists', key, 'mode') == 1 and 'read/write lock' or 'hash with ' .. size .. ' fields'
    end
    local item = redis.call('hgetall', key)
    if string.find(item[1], ':', 1, true) and string.find(item[2], '^%d+$') then
        return 'lock', item[1], item[2]
    end
    return 'hash with the field ' .. item[1]
end
-- Stands in front of the scripts that grant with a fencing token. Tokens are decimal
-- text: from 2^53 on, Lua's numbers are not exact.

-- lead is how far tokens may be ahead of the server's clock, in microseconds, by what
-- is reserved: less than it takes to lose the counter and have another server in its
-- place. What is not reserved is counted on in any case.
local lead = 10000

-- life is how long a counter outlives its newest token, in milliseconds: 30 days.
local life = 2592000000

-- clock returns the server's time in microseconds, as text.
local function clock()
    local time = redis.call('time')
    return time[1] .. string.format('%06d', time[2])
end

local function less(a, b)
    return #a < #b or #a == #b and a < b
end

-- number returns a token as what a reply holds at the lowest price.
local function number(token)
    return less(token, '9007199254740992') and tonumber(token) or token
end

-- text undoes that.
local function text(token)
    return type(token) == 'number' and string.format('%.0f', token) or token
end

-- newest returns the newest token of a counter, '0' before the first, and nil if
-- the key cannot be counted on.
local function newest(counter)
    local text = redis.pcall('get', counter) or '0'
    if type(text) == 'table' or not string.find(text, '^%d+$') or not less(text, '9223372036854775807') then
        return nil
    end
    return text
end

-- strange is the reply of a script whose counter cannot be counted on.
local function strange(counter)
    local what = redis.call('type', counter).ok
    if what == 'none' then
        redis.call('get', counter) -- is not allowed: fails again
    end
    return {-1, counter, what}
end

-- count sets a counter, and lets it outlive its newest token for as long as it has to.
-- One without TTL was made by Redisson, which counts on: it stays so.
local function count(counter, token, ttl)
    if ttl == -1 then
        redis.call('set', counter, token)
    else
        redis.call('set', counter, token, 'px', life)
    end
end

-- following counts on from the newest token. It returns the token after it, and how
-- many of the spare ones behind that it has reserved: no more than keeps the counter
-- near the clock.
--
-- The server's clock carries the order of tokens over a lost counter, the counter
-- over a clock that was set back.
local function following(counter, newest, spare)
    local now, ttl = clock(), redis.call('pttl', counter)
    spare = tonumber(spare or 0)
    if less(newest, now) then
        spare = math.min(spare, lead)
        count(counter, now, ttl)
        if spare > 0 then
            redis.call('incrby', counter, spare)
        end
        return now, spare
    end
    spare = math.max(math.min(spare, lead - (tonumber(newest) - tonumber(now))), 0)
    redis.call('incrby', counter, 1)
    local token = redis.call('get', counter)
    if spare > 0 then
        redis.call('incrby', counter, spare)
    end
    if ttl ~= -1 then
        redis.call('pexpire', counter, life)
    end
    return token, spare
end

-- restore gives back tokens that were reserved and not used: the newest one is used
-- again, if none was counted since.
local function restore(counter, used, reserved)
    if redis.pcall('get', counter) == reserved then
        count(counter, used, redis.call('pttl', counter))
    end
end
-- Stands in front of the scripts that grant a lock.

-- grant gives the lock, which is free, to an owner. It returns the answer to the
-- owner, see try.lua.
--
-- A script that fails half-way is not rolled back, so what may fail comes first:
-- a token that nobody gets does no harm, and a lock without TTL is not left. The
-- count is a string because Redis formats numbers for what a double may hold.
local function grant(key, counter, lease, owner, spare)
    local token, reserved
    if counter then
        local last = newest(counter)
        if not last then
            return strange(counter)
        end
        token, reserved = following(counter, last, spare)
    end
    local set = redis.pcall('hset', key, owner, '1')
    if type(set) == 'table' then
        return set
    end
    local armed = redis.pcall('pexpire', key, lease)
    if armed ~= 1 then
        redis.call('del', key)
        return armed
    end
    return counter and {1, number(token), reserved} or 1
end

-- again answers an owner that holds the lock: the answer to an earlier delivery was
-- lost, or the message that granted it. It gets a token of its own, as the earlier
-- one is not known here, or was never given. PEXPIRE comes first because a server out
-- of memory refuses a script its first SET only.
local function again(key, counter, lease, ttl, spare)
    local last
    if counter then
        last = newest(counter)
        if not last then
            return strange(counter)
        end
    end
    -- Without a write here, WAIT behind it would not wait for the one that granted the lock.
    redis.call('pexpire', key, math.max(ttl, tonumber(lease)))
    if not counter then
        return 1
    end
    local token, reserved = following(counter, last, spare)
    return {1, number(token), reserved}
end
-- Stands in front of the scripts that refuse a lock.
--
-- recall asks the client of an owner to give back a kept lock: the hold count is 0, see
-- retain.lua. The message names the owner. The script does not know by which command the
-- client hears.
local function recall(key, owner, held)
    if held ~= '0' then
        return
    end
    local name = key -- as Own in names.go has it
    if not string.find(key, '{', 1, true) then
        name = '{' .. key .. '}'
    elseif string.find(key, '^{[^{]*}:*$') then
        name = key .. ':'
    end
    for _, command in ipairs({'publish', 'spublish'}) do -- a server may know, or permit, only one
        redis.pcall(command, 'rlock_channel:' .. name .. ':' .. string.match(owner, '^(.*):'), owner)
    end
end
-- Grants a free lock to an owner, whoever queues.
--
-- key      lock
-- counter  fencing counter; nil for a lock without tokens
-- lease    milliseconds
-- owner    a new one for every grant
-- spare    with a counter: how many tokens to reserve behind the owner's token
--
-- reply    1                   acquired, without a counter
--          {1, token, spare}   acquired; so many tokens behind the token are reserved
--          {0, pttl, owner}    refused; the rest of the holder's lease, -1 without an end
--          {-1, key, type}     the key is no lock
local function try(key, counter, lease, owner, spare)
    local ttl = redis.call('pttl', key)
    if ttl == -2 then -- which says that the key does not exist
        return grant(key, counter, lease, owner, spare)
    end
    local what, holder, held = kind(key)
    if what ~= 'lock' then
        return {-1, key, what}
    elseif holder == owner then
        return again(key, counter, lease, ttl, spare)
    end
    recall(key, holder, held)
    return {0, ttl, holder}
end

local function part(i)
    local k, a = (i - 1) * 2 + 1, (i - 1) * 3 + 1
    return try(KEYS[k], KEYS[k+1], ARGV[a], ARGV[a+1], ARGV[a+2])
end
if #KEYS == 2 then
    return part(1)
end
return outcomes(#KEYS / 2, part, replies)
